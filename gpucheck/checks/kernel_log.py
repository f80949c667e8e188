"""Kernel log: which errors did the driver, the switches and the IOMMU report since boot?

Sources: Xid and SXid lines (NVRM, nvidia-nvswitch) with the actions of NVIDIA's Xid catalogue, and the lines by which
the kernel tells of GPUs that did not initialise, of BARs without room, and of blocked DMA.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from gpucheck.knowledge.xid import Xid, xids
from gpucheck.model import Check, Finding, Host, KernelLine, KernelLog
from gpucheck.model.about import About

NAME = "kernel-log"
XID = re.compile(r"NVRM: Xid \(PCI:(?P<bus_id>[0-9a-fA-F:.]+)\): (?P<code>\d+)")
SXID = re.compile(r"nvidia-nvswitch\d+: SXid \(PCI:(?P<bus_id>[0-9a-fA-F:.]+)\): (?P<code>\d+)(?P<text>.*)")
SHOWN = 3


class Sign(NamedTuple):
    """A line that tells of trouble by itself."""

    pattern: re.Pattern[str]
    why: str
    fix: str
    cause: str


SIGNS = (
    Sign(
        re.compile(r"NVRM: .*(RmInitAdapter failed|rm_init_adapter failed)"),
        "the driver could not initialise a GPU: NVML lists fewer than the PCI bus",
        "check power and seating, look for an Xid beside it, reboot",
        "gpu-lost",
    ),
    Sign(
        re.compile(r"NVRM: API mismatch"),
        "a program used a driver library of another version than the kernel module",
        "reboot, or reload the modules; in a container use the host's libraries",
        "driver-mismatch",
    ),
    Sign(
        re.compile(r"BAR \d+.*(no space for|can't assign|failed to assign)"),
        "the firmware left no room for the memory window of a device",
        "enable Above 4G Decoding and Resizable BAR in the BIOS",
        "rebar-off",
    ),
)
BLOCKED = re.compile(
    r"(DMAR: \[DMA (Read|Write).*?device \[?(?P<intel>[0-9a-f:.]+)\]?.*fault"
    r"|AMD-Vi: Event logged \[IO_PAGE_FAULT.*?device=(?P<amd>[0-9a-f:.]+)"
    r"|\S+ (?P<driver>[0-9a-f]{4}:[0-9a-f:.]+): AMD-Vi: Event logged \[IO_PAGE_FAULT)",
    re.IGNORECASE,
)


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The log, and the bus ids of the GPUs."""

    log: KernelLog
    gpus: tuple[str, ...]


def probe(host: Host) -> Values:
    """Ask the kernel log and the PCI bus."""
    gpus = tuple(device.bus_id for device in host.pci() if device.is_nvidia_gpu)
    return Values(log=host.kernel_log(), gpus=gpus)


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for each code and GPU, one for each kind of trouble, else one for the host."""
    log = values.log
    if log.source is None:
        why = f"the kernel log could not be read, so errors since boot are not known: {log.denied}"
        yield About(check=NAME).unknown(why, "sudo gpucheck verify --only kernel-log")
        return
    found = [*_xids(log.lines), *_sxids(log.lines), *_signs(log.lines), *_blocked(log.lines, values.gpus)]
    yield from found
    if not found:
        about = About(check=NAME, evidence=(f"{log.source}: {len(log.lines)} lines about GPUs, PCI and the IOMMU",))
        yield about.passes("no error of a GPU, switch or link")


def _xids(lines: Iterable[KernelLine]) -> Iterator[Finding]:
    """What needs nothing done is left out: an application's own fault is no fault of the host."""
    groups = defaultdict(list)
    for line in lines:
        match = XID.search(line.text)
        if match:
            groups[_bus_id(match["bus_id"]), int(match["code"])].append(line)
    for (bus_id, code), told in groups.items():
        known = xids().get(code)
        if known is None:
            yield _unknown_code(bus_id, code, told)
        elif known.verdict != "note":
            yield _known_code(bus_id, code, known, told)


def _known_code(bus_id: str, code: int, xid: Xid, lines: list[KernelLine]) -> Finding:
    about = About(check=NAME, subject=f"gpu:{bus_id}", evidence=_quoted(lines))
    seen, why = _often(f"Xid {code}", len(lines)), f"{xid.reading} (gpucheck explain xid:{code})"
    fix = f"{xid.immediate}; then {xid.later}" if xid.later else xid.immediate
    judge = about.fails if xid.verdict == "fail" else about.warns
    return judge(seen, "no Xid", why, fix, xid.cause or "xid", "certain")


def _unknown_code(bus_id: str, code: int, lines: list[KernelLine]) -> Finding:
    about = About(check=NAME, subject=f"gpu:{bus_id}", evidence=_quoted(lines))
    why = "this Xid is not in the table, so what it means is not known here"
    fix = "look it up in NVIDIA's Xid catalogue, and follow its action"
    return about.warns(_often(f"Xid {code}", len(lines)), "no Xid", why, fix, "xid", "possible")


def _sxids(lines: Iterable[KernelLine]) -> Iterator[Finding]:
    groups = defaultdict(list)
    for line in lines:
        match = SXID.search(line.text)
        if match:
            groups[_bus_id(match["bus_id"]), int(match["code"])].append((match["text"], line))
    for (bus_id, code), told in groups.items():
        about = About(check=NAME, subject=f"link:{bus_id}", evidence=_quoted([line for _, line in told]))
        fatal = any("fatal" in text.lower() and "non-fatal" not in text.lower() for text, _ in told)
        seen, why = _often(f"SXid {code}", len(told)), "an NVSwitch reported an error on its links or inside"
        fix = "reset all GPUs of the board together, restart fabric manager; contact support if it returns"
        yield (about.fails if fatal else about.warns)(seen, "no SXid", why, fix, "nvswitch-error", "certain")


def _signs(lines: tuple[KernelLine, ...]) -> Iterator[Finding]:
    for sign in SIGNS:
        told = [line for line in lines if sign.pattern.search(line.text)]
        if told:
            about = About(check=NAME, evidence=_quoted(told))
            yield about.warns(f"{len(told)} lines", "none", sign.why, sign.fix, sign.cause, "likely")


def _blocked(lines: Iterable[KernelLine], gpus: tuple[str, ...]) -> Iterator[Finding]:
    """Faults of the IOMMU on a GPU's address: what a peer wrote or read there was lost."""
    groups = defaultdict(list)
    for line in lines:
        match = BLOCKED.search(line.text)
        if match:
            bus_id = _bus_id(match["intel"] or match["amd"] or match["driver"])
            if bus_id in gpus:
                groups[bus_id].append(line)
    for bus_id, told in groups.items():
        about = About(check=NAME, subject=f"gpu:{bus_id}", evidence=_quoted(told))
        why = "the IOMMU blocked accesses to or from this GPU: their data was lost, although the copy reports success"
        fix = "boot with iommu=pt or switch the IOMMU off on bare metal, then measure the integrity: gpucheck bandwidth"
        yield about.fails(f"{len(told)} blocked accesses", "none", why, fix, "iommu-translation", "certain")


def _often(what: str, times: int) -> str:
    return what if times == 1 else f"{what}, {times} times"


def _bus_id(text: str) -> str:
    """``0000:3B:00``, ``3b:00.0`` and ``0000:3b:00.0`` as Linux writes it."""
    text = text.lower().rstrip(".")
    text = text if text.count(":") > 1 else f"0000:{text}"
    return text if "." in text else f"{text}.0"


def _quoted(lines: list[KernelLine]) -> tuple[str, ...]:
    first = [
        f"[{line.seconds:.0f} s] {line.text}" if line.seconds is not None else line.text for line in lines[-SHOWN:]
    ]
    return (*first, f"{len(lines) - SHOWN} earlier lines") if len(lines) > SHOWN else tuple(first)


CHECK = Check(NAME, frozenset({"hardware", "quick"}), probe, evaluate)
