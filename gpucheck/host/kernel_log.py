"""The kernel's messages about GPUs, switches, PCI, the IOMMU and the host's health: from /dev/kmsg, or the journal.

/dev/kmsg is a ring: on a host that has been up for long the oldest messages are gone, and then the journal knows more.
Format: Linux' Documentation/ABI/testing/dev-kmsg.
"""

import os
import re
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpucheck.host.readers.files import content_of
from gpucheck.model import KernelLine, KernelLog
from gpucheck.printable import printable

# Wider than what the check knows: a recording is evaluated by later versions too.
ABOUT_GPUS = re.compile(
    r"NVRM|nvidia|nouveau|NVLink|NVSwitch|SXid|\buvm\b|Xid \(|dcgm|pcieport|PCIe|pciehp|\bAER\b|\bDPC\b|DMAR|AMD-Vi"
    r"|IOMMU|arm-smmu|\bBAR \d|can't assign|\bpci [0-9a-f]{4,}:|vfio-pci|mlx5|mce:|EDAC|Hardware Error|Out of memory"
    r"|oom-kill|Killed process|blocked for more than|soft lockup|Oops|\bBUG:|general protection fault|power state from"
    r"|swiotlb|not ready \d{1,9} ?ms|device recovery|modeset ownership|firmware load|module verification failed"
    r"|Loading of .{1,40} rejected|Lockdown|Secure boot|power cables|nv-fabricmanager|nv-hostengine|fabric ?manager"
    r"|mlx4|infiniband|ib_core|nv_peer_mem|qed_probe|NETDEV WATCHDOG|\bMCE\b|machine check|hard ?lockup|watchdog: "
    r"|bnxt_|\befa [0-9a-f]{4}:|\bLink (?:is )?(?:up|down)\b|\bstall|kernel (?:panic|BUG)"
    r"|\boom[-_ ]|segfault at|\btrap |temperature|throttled|thermal",
    re.IGNORECASE,
)
RECORD = re.compile(r"\d{1,20},(?P<sequence>\d{1,20}),(?P<microseconds>\d{1,20}),[^;]*;(?P<text>.*)")
ESCAPED = re.compile(r"(?:\\x[0-9a-f]{2})+")
# A message of several lines names the driver on each.
DRIVER_LINE = re.compile(r"\\x0a(?=NVRM: )")
JOURNAL_LINE = re.compile(r"\[\s*(?P<seconds>\d+\.\d+)\] \S+ kernel: (?P<text>.*)")
JOURNAL = ("journalctl", "--dmesg", "--boot", "--output=short-monotonic", "--no-pager", "--quiet")
JOURNAL_SECONDS = 10.0
# A GPU that fails in a loop can write thousands of lines a minute; the newest are kept.
MOST_LINES = 20_000
RECORD_BYTES = 8192  # the kernel's own limit for one record
MESSAGE_LINES = 50
REMEDY = "run as root, or: sudo sysctl kernel.dmesg_restrict=0"


def read_kernel_log(root: Path, *, simulated: bool) -> KernelLog:
    """The messages since boot, or what was tried and why it failed. A simulated machine has only its own kmsg."""
    device = root / "dev/kmsg"
    if simulated:
        content = content_of(device)
        if content is None:
            return KernelLog(denied="/dev/kmsg: the simulated machine has no kernel log")
        return KernelLog(lines=kmsg_lines(content.decode(errors="replace"))[1], source="/dev/kmsg")
    try:
        ring = _ring(device)
        first, lines = kmsg_lines(ring)
        begins, why_not = _begins(ring), ""
    except OSError as error:
        first, lines, begins = None, (), 0.0
        why_not = f"/dev/kmsg: {error.strerror}"
    if first == 0:
        return KernelLog(lines=lines, source="/dev/kmsg")
    journal, why_no_journal = _journal()
    if journal.lines:
        return journal
    if first is not None:
        return KernelLog(lines=lines, source="/dev/kmsg, whose oldest messages are overwritten", begins_s=begins)
    return KernelLog(denied=f"{why_not or '/dev/kmsg: empty'}; journalctl: {why_no_journal}. To see it: {REMEDY}")


def kmsg_lines(content: str) -> tuple[int | None, tuple[KernelLine, ...]]:
    """The number of the first record (0 at boot; None where there is no record), and the lines about GPUs."""
    records = [found for line in content.splitlines() if (found := RECORD.fullmatch(line))]
    lines = (KernelLine(text=_unescaped(r["text"]), seconds=int(r["microseconds"]) / 1e6) for r in records)
    return (int(records[0]["sequence"]) if records else None), _kept(lines)


def journal_lines(content: str) -> tuple[KernelLine, ...]:
    """The messages of ``journalctl --output=short-monotonic`` about GPUs; later lines of a message are indented.

    A line without the driver's prefix may come from a process name, and is joined as /dev/kmsg has it.
    """
    found: list[tuple[float, list[str]]] = []
    for line in content.splitlines():
        if match := JOURNAL_LINE.fullmatch(line):
            found.append((float(match["seconds"]), [match["text"]]))
        elif found and line.startswith("    ") and len(found[-1][1]) < MESSAGE_LINES:
            found[-1][1].append(line.strip())
    joined = (KernelLine(text=DRIVER_LINE.sub("\n", r"\x0a".join(parts)), seconds=seconds) for seconds, parts in found)
    return _kept(joined)


def _begins(content: str) -> float:
    """Return the time of the first message of the ring or the journal, in seconds since boot; 0 without one."""
    for line in content.splitlines():
        if found := RECORD.fullmatch(line):
            return int(found["microseconds"]) / 1e6
        if found := JOURNAL_LINE.fullmatch(line):
            return float(found["seconds"])
    return 0.0


def _kept(lines: Iterable[KernelLine]) -> tuple[KernelLine, ...]:
    return tuple(deque((line for line in lines if ABOUT_GPUS.search(line.text)), maxlen=MOST_LINES))


def _unescaped(text: str) -> str:
    r"""The text with the printable characters that the kernel escapes: a backslash, and what is not ASCII.

    The rest stays ``\x0a``. A line break is one only before the driver's own prefix: the kernel escapes those of a
    message of several lines and those in the name of a process, of at most 15 characters, in the same way.
    """
    parts = DRIVER_LINE.split(text)
    return "\n".join(ESCAPED.sub(_decoded, part) for part in parts)


def _decoded(found: re.Match[str]) -> str:
    raw = bytes.fromhex(found[0].replace("\\x", ""))
    text = raw.decode("utf-8", "surrogateescape")
    return "".join(
        c if printable(c) == c else "".join(f"\\x{b:02x}" for b in c.encode("utf-8", "surrogateescape")) for c in text
    )


def _ring(device: Path) -> str:
    descriptor = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return b"".join(_records(descriptor)).decode(errors="replace")
    finally:
        os.close(descriptor)


def _records(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            record = os.read(descriptor, RECORD_BYTES)
        except BrokenPipeError:  # overwritten while we read: the next read goes on after the gap
            continue
        except BlockingIOError:  # the newest record has been read
            return
        if not record:
            return
        yield record


def _journal() -> tuple[KernelLog, str]:
    try:
        done = subprocess.run(
            JOURNAL, capture_output=True, text=True, check=False, timeout=JOURNAL_SECONDS, errors="replace"
        )
    except FileNotFoundError:
        return KernelLog(), "not installed"
    except (OSError, subprocess.TimeoutExpired) as error:
        return KernelLog(), str(error)
    why = done.stderr.strip().splitlines()
    log = KernelLog(lines=journal_lines(done.stdout), source="journalctl --dmesg", begins_s=_begins(done.stdout))
    return log, why[-1] if why else "no kernel message"
