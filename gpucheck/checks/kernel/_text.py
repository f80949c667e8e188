"""From lines of the kernel log to whole messages, and to the PCI functions that they name.

The driver and the kernel spread some messages over several lines: sentences of NVRM, error records of the firmware,
stack traces. Each becomes one text. Nothing here is unbounded: long lines are cut, joins end after a number of lines.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpucheck.model import KernelLine

MAX_LINE = 2048  # the kernel cuts its own lines at about 1000 characters
MAX_TEXT = 8192
BUS = (
    r"(?P<bus>(?<![0-9a-fA-F])(?<![0-9a-fA-F]:)(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F](?:\.[0-7])?"
    r"(?![0-9a-fA-F]|:[0-9a-fA-F]))"
)
SENTENCE = re.compile(
    r"NVRM: (?:The NVIDIA (?:v?GPU [0-9a-fA-F:.]{4,20}|\S.{0,80}GPU installed)|API mismatch:|This PCI I/O region"
    r"|request_mem_region|This can occur|Failing GPU memory)"
)
OWN_SENTENCE = re.compile(r"NVRM: (?:Xid|GPU |The NVIDIA|loading|None of|No NVIDIA|RmInit|rm_|This |API )")
SENTENCE_LINES = 7
RECORD = re.compile(r"(?:\{\d{1,9}\})?\[Hardware Error\]:")
RECORD_LINES = 40
TRACE = re.compile(
    r"blocked for more than \d|soft lockup|\bBUG:|general protection fault|\bOops\b|hard LOCKUP|kernel BUG at"
)
TRACE_PART = re.compile(
    r"\+0x[0-9a-f]+/0x|Call Trace|Tainted|\btask:|RIP:|RSP:|RAX:|RDX:|RBP:|R10:|R13:|TASK>|IRQ>|Code:|echo 0 >"
    r"|Hardware name|Workqueue|\bCPU: \d|[FC]S: |CR2: |odules linked in|PKRU"
)
TRACE_LINES = 60
NAMED_GPU = re.compile(rf"(?:NVRM: (?:Xid \(|GPU (?:at )?|The NVIDIA v?GPU )(?:PCI:)?|\bnvidia ){BUS}")
NAMED_SWITCH = re.compile(rf"\bnvidia-nvswitch(?:\d{{0,3}}: SXid \(PCI:| ){BUS}")
NAMED_BY_DRIVER = re.compile(rf"\b(?P<driver>[a-z][\w-]{{1,30}}) {BUS}: ")
MAY_MATTER = {"nvidia", "nvidia-nvswitch", "nouveau", "pcieport", "pci", "vfio-pci", "device"}


class LogMessage(NamedTuple):
    """One message: its text, the line it started with, and its place among the others."""

    text: str
    line: KernelLine
    number: int


class Named(NamedTuple):
    """What the log reports about PCI functions: GPUs, NVSwitches, and devices with other drivers."""

    gpus: frozenset[str]
    switches: frozenset[str]
    others: frozenset[str]


def messages(lines: Iterable[KernelLine]) -> list[LogMessage]:
    flat = [(part[:MAX_LINE], line) for line in lines for part in line.text.split("\n")]
    found: list[LogMessage] = []
    at = 0
    while at < len(flat):
        text, line = flat[at]
        parts = [text, *(_more(flat, at + 1, text) if _may_go_on(text) else ())]
        found.append(LogMessage(" ".join(parts)[:MAX_TEXT], line, len(found)))
        at += len(parts)
    return found


def named(log: Iterable[LogMessage]) -> Named:
    """The GPUs, the switches and the other devices that the messages name."""
    gpus: set[str | None] = set()
    switches: set[str | None] = set()
    others: set[str | None] = set()
    for message in log:
        gpus |= {bus_id(match["bus"]) for match in NAMED_GPU.finditer(message.text)}
        switches |= {bus_id(match["bus"]) for match in NAMED_SWITCH.finditer(message.text)}
        by_driver = NAMED_BY_DRIVER.finditer(message.text)
        others |= {bus_id(match["bus"]) for match in by_driver if match["driver"] not in MAY_MATTER}
    found = (gpus, switches, others - gpus - switches)
    return Named(*(frozenset(bus for bus in ids if bus) for ids in found))


def of_another_driver(text: str, bus: str) -> bool:
    """Whether the message is by the driver of another kind of device: ``mlx5_core 0000:5c:00.0: PCIe Bus Error``."""
    found = (m for m in NAMED_BY_DRIVER.finditer(text) if bus_id(m["bus"]) == bus)
    return any(match["driver"] not in MAY_MATTER for match in found)


def bus_id(text: str | None) -> str | None:
    """``0000:3B:00``, ``3b:00.0`` and ``00000000:3b:00.0`` as Linux writes it. None for what no card can have."""
    if text is None:
        return None
    text = text.lower()
    parts = (text if text.count(":") > 1 else f"0000:{text}").split(":")
    domain, bus, device = parts[0][-4:] if parts[0][:-4].strip("0") == "" else parts[0], parts[1], parts[2]
    device = device if "." in device else f"{device}.0"
    if (domain, bus) == ("0000", "00") and device.startswith("00"):
        return None  # the host bridge of every machine: a placeholder, never a card
    return f"{domain}:{bus}:{device}"


def _may_go_on(text: str) -> bool:
    return bool(RECORD.search(text) or TRACE.search(text) or (SENTENCE.search(text) and not _ended(text)))


def _more(flat: list[tuple[str, KernelLine]], start: int, head: str) -> Iterator[str]:
    if RECORD.search(head):
        for text, _ in flat[start : start + RECORD_LINES]:
            if not RECORD.search(text) or "Hardware error from" in text:
                return
            yield text
    elif TRACE.search(head):
        for text, _ in flat[start : start + TRACE_LINES]:
            if TRACE.search(text) or "NVRM: " in text or not TRACE_PART.search(text):
                return
            yield text
    else:
        for text, _ in flat[start : start + SENTENCE_LINES]:
            _, found, rest = text.partition("NVRM: ")
            if not found or OWN_SENTENCE.search(text):
                return
            yield rest.strip()
            if _ended(text):
                return


def _ended(text: str) -> bool:
    return text.rstrip().endswith((".", "!"))
