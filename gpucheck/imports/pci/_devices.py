"""The devices that lspci lists, each with the content of its registers."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gpucheck.imports._text import regex

# Lines of lspci -vvv below a device: links, base address registers, Access Control Services, error registers.
GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}
# Bits of the ACS capability and control registers in the order of PCIe base specification 7.7.11; lspci's names.
ACS_BITS = {
    "SrcValid": 0x01,
    "TransBlk": 0x02,
    "ReqRedir": 0x04,
    "CmpltRedir": 0x08,
    "UpstreamFwd": 0x10,
    "EgressCtrl": 0x20,
    "DirectTrans": 0x40,
}
REDIRECTS = ACS_BITS["ReqRedir"] | ACS_BITS["CmpltRedir"] | ACS_BITS["EgressCtrl"]
MIB = {"": 1 / (1 << 20), "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": float(1 << 20)}

LINK = regex(
    r"^\s*(?P<which>LnkCap|LnkSta):\s*(?:Port #\d{1,4}, )?Speed (?P<speed>[\d.]{1,4}|unknown|\S{1,12})"
    r"(?:GT/s)?(?: \((?:ok|downgraded|overdriven|strange)\))?, Width x(?P<width>\d{1,2})"
)
ACS = regex(r"^\s*(?P<which>ACSCap|ACSCtl):\s*(?P<flags>\S.*)")
FLAG = regex(r"\b([A-Za-z][\w>]{1,30})([+-])(?![\w>])")
MEMORY = regex(
    r"^\s*(?:Region \d{1,2}: )?Memory at (?P<where><\w{1,20}>|[0-9a-f]{1,16}) "
    r"\((?:64|32)-bit, (?P<non>non-)?prefetchable\)(?P<more>(?: \[\w{1,20}\]){0,4}) "
    r"\[size=(?P<size>\d{1,8})(?P<unit>[KMGT]?)\]"
)
BUSES = regex(r"^\s*Bus: primary=([0-9a-f]{2}), secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})")
EXPRESS = regex(
    r"^\s*Capabilities: \[\w{1,8}(?: v\d)?\] Express(?: \(v\d\))? "
    r"(?P<type>[A-Za-z][\w /-]{2,40}?)(?: \(Slot|,|$)"
)
ERRORS = regex(r"^\s*UESta:\s*(?P<flags>\S.*)")
NUMA = regex(r"^\s*NUMA node: (\d{1,3})\s*$")
DRIVER = regex(r"^\s*Kernel driver in use: (\S{1,60})")
MODULES = regex(r"^\s*Kernel modules: (\S.{0,200})")
GROUP = regex(r"^\s*IOMMU group: (\d{1,5})")
GONE = regex(r"^\s*!!! Unknown header type 7f")
DENIED = regex(r"^\s*Capabilities: <access denied>")
PORTS = {"Root Port": "root-port", "Upstream Port": "switch-upstream", "Downstream Port": "switch-downstream"}


@dataclass
class Registers:
    """What the lines below one device report. Generations and lanes are None if they are missing or unknown."""

    cap_gen: int | None = None
    cap_width: int | None = None
    sta_gen: int | None = None
    sta_width: int | None = None
    acs_cap: int | None = None
    acs_ctl: int | None = None
    bars_mib: list[float] = field(default_factory=list)
    unassigned: bool = False
    buses: tuple[int, int] | None = None
    port: str | None = None
    numa: int | None = None
    driver: str | None = None
    modules: str = ""
    group: str | None = None
    gone: bool = False
    denied: bool = False
    uncorrected: frozenset[str] = frozenset()

    @property
    def bar1_mib(self) -> float | None:
        """The largest prefetchable window: the GPU's memory. Its number differs by generation."""
        return max(self.bars_mib, default=None)

    def take(self, line: str) -> None:
        for pattern, use in _READERS:
            if match := pattern.search(line):
                use(self, match)
                return
        for name, pattern in _FIELDS.items():
            if match := pattern.search(line):
                value = match[1] if match.groups() else True
                setattr(self, name, int(value) if name == "numa" else value)
                return


def acs_value(flags: str) -> int:
    return sum(ACS_BITS.get(name, 0) for name, sign in FLAG.findall(flags) if sign == "+")


def _link(found: Registers, match: re.Match[str]) -> None:
    which = match["which"][3:].lower()
    setattr(found, f"{which}_gen", GENERATIONS.get(match["speed"]))
    setattr(found, f"{which}_width", int(match["width"]) or None)


def _acs(found: Registers, match: re.Match[str]) -> None:
    setattr(found, f"acs_{match['which'][3:].lower()}", acs_value(match["flags"]))


def _memory(found: Registers, match: re.Match[str]) -> None:
    if match["non"]:
        return
    if match["where"].startswith("<") or "virtual" in match["more"]:
        found.unassigned = found.unassigned or match["where"] == "<unassigned>"
        return
    found.bars_mib.append(int(match["size"]) * MIB[match["unit"]])


def _errors(found: Registers, match: re.Match[str]) -> None:
    found.uncorrected = frozenset(name for name, sign in FLAG.findall(match["flags"]) if sign == "+")


def _buses(found: Registers, match: re.Match[str]) -> None:
    found.buses = int(match[2], 16), int(match[3], 16)


def _express(found: Registers, match: re.Match[str]) -> None:
    found.port = next((kind for name, kind in PORTS.items() if name in match["type"]), found.port)


_READERS = ((LINK, _link), (ACS, _acs), (MEMORY, _memory), (BUSES, _buses), (EXPRESS, _express), (ERRORS, _errors))
# Lines that hold one value, by the field that keeps it; a line without a group is a mark.
_FIELDS = {
    "numa": NUMA, "driver": DRIVER, "modules": MODULES, "group": GROUP, "gone": GONE, "denied": DENIED
}  # fmt: skip


HEAD = regex(
    r"^\s{0,8}(?:\d{1,5}:)??(?:[0-9a-f:.]{4,13}/){0,8}(?:(?P<domain>[0-9a-f]{4,8}):)?"
    r"(?P<slot>[0-9a-f]{2}:[01][0-9a-f]\.[0-7])\s{1,8}"
    r"(?:\"?(?P<class>3D controller|[A-Z][\w/ ()&.,+-]{2,60}?)(?: \[(?P<id>[0-9a-f]{4})\])?: |"
    r"(?P<number>[0-9a-f]{4}): )"
    r"(?P<name>\S.{0,400})$"
)
ABOVE = regex(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[01][0-9a-f]\.[0-7])/")
# The device that a command or a comment names: lspci -vvv -s 61:00.0
COMMAND = regex(r"\blspci\b.{0,200}?\s-s\s?(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[01][0-9a-f](?:\.[0-7])?)\b")
SLOT_ID = regex(r"(?:\[|^)([0-9a-f]{4}):([0-9a-f]{4})(?:\]|\b)")
MODEL = regex(r"\[([^\[\]]{2,80})\]")
GPU_CLASSES = ("3D controller", "VGA compatible controller", "Display controller")
CHIPSET = regex(r"\b(?:Chipset|PCH)\b")
MOBILE = regex(r"Mobile|Max-Q|\b\d{3,4}MX?\b|Optimus", re.IGNORECASE)


@dataclass
class Device:
    """One function. kind: its class as lspci names it, empty where only a command names the function."""

    bus_id: str
    kind: str = ""
    name: str = ""
    class_id: str = ""
    ids: tuple[str, str] | None = None
    line: int = 0
    head: str = ""
    path: tuple[str, ...] = ()
    is_gpu: bool = False
    seen: Registers = field(default_factory=Registers)

    @property
    def is_bridge(self) -> bool:
        return self.kind in ("PCI bridge", "bridge") or self.class_id == "0604"

    @property
    def is_gone(self) -> bool:
        return self.seen.gone or "(rev ff)" in self.name

    @property
    def may_sleep(self) -> bool:
        """A notebook's GPU, or one without a name, which power management may have switched off."""
        return MOBILE.search(self.name) is not None or self.model is None

    @property
    def is_of_chipset(self) -> bool:
        return CHIPSET.search(self.name) is not None

    @property
    def model(self) -> str | None:
        """The product's name; None where the list of PCI ids has none or several."""
        if not self.is_gpu:
            return None
        names = [name for name in MODEL.findall(self.name) if not SLOT_ID.match(name) and "/" not in name]
        return names[0] if len(names) == 1 else None


def bus_id_of(domain: str | None, slot: str) -> str:
    domain = (domain or "0000").lower()
    return f"{domain[-4:] if domain.startswith('0000') else domain}:{slot.lower()}"


def devices(lines: Iterable[str], unnamed: list[tuple[int, str]]) -> Iterator[Device]:
    """Every device in order; the same one may come several times.

    A blank line and another command end a device; lines of registers that belong to none are added to `unnamed`.
    """
    now: Device | None = None
    for number, line in enumerate(lines, start=1):
        found = _begun(line, number)
        if found is not None or not line.strip() or "lspci" in line:
            if now is not None:
                yield now
            now = found
        elif now is not None:
            now.seen.take(line)
        else:
            unnamed.append((number, line))
    if now is not None:
        yield now


def _begun(line: str, number: int) -> Device | None:
    if match := HEAD.match(line):
        return _device(match, number, line)
    if (match := COMMAND.search(line)) is None:
        return None
    slot = match[2] if "." in match[2] else f"{match[2]}.0"
    return Device(
        bus_id_of(match[1], slot),
        kind="bridge" if "bridge" in line else "",
        line=number,
        head=line.strip(),
        is_gpu="GPU function" in line,
    )


def _device(match: re.Match[str], number: int, line: str) -> Device:
    kind, name = match["class"] or "", match["name"]
    class_id = match["id"] or match["number"] or ""
    found = SLOT_ID.findall(name)
    ids = found[-1] if found else None
    is_nvidia = name.lower().startswith("nvidia ") or (ids is not None and ids[0] == "10de")
    is_display = kind in GPU_CLASSES or class_id[:3] == "030"
    return Device(
        bus_id_of(match["domain"], match["slot"]),
        kind=kind,
        name=name,
        class_id=class_id,
        ids=ids,
        line=number,
        head=line.strip(),
        path=tuple(bus_id_of(domain or None, slot) for domain, slot in ABOVE.findall(line[: match.start("slot")])),
        is_gpu=is_nvidia and is_display,
    )


def merged(found: Iterable[Device]) -> dict[str, Device]:
    every: dict[str, Device] = {}
    for device in found:
        known = every.setdefault(device.bus_id, device)
        if known is device:
            continue
        for name in ("kind", "name", "class_id", "ids", "path", "is_gpu"):
            if not getattr(known, name) or (name == "kind" and known.kind == "bridge"):
                setattr(known, name, getattr(device, name) or getattr(known, name))
        empty = Registers()
        for name, value in vars(device.seen).items():
            if value != getattr(empty, name):
                setattr(known.seen, name, value)
    return every
