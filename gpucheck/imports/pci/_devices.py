"""The devices that lspci lists, each with the content of its registers."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

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
# Lines that hold one value, by the field of the device that keeps it.
FIELDS = (
    regex(r"^\s*Bus: primary=[0-9a-f]{2}, secondary=(?P<secondary>[0-9a-f]{2}), subordinate=[0-9a-f]{2}"),
    regex(
        r"^\s*Capabilities: \[\w{1,8}(?: v\d)?\] Express(?: \(v\d\))? "
        r"(?P<port>[A-Za-z][\w /-]{2,40}?)(?: \(Slot|,|$)"
    ),
    regex(r"^\s*UESta:\s*(?P<uncorrected>\S.*)"),
    regex(r"^\s*NUMA node: (?P<numa>\d{1,3})\s*$"),
    regex(r"^\s*Kernel driver in use: (?P<driver>\S{1,60})"),
    regex(r"^\s*Kernel modules: (?P<modules>\S.{0,200})"),
    regex(r"^\s*IOMMU group: (?P<group>\d{1,5})"),
    regex(r"^\s*(?P<gone>!!! Unknown header type 7f)"),
    regex(r"^\s*Capabilities: (?P<denied><access denied>)"),
)
PORTS = {"Root Port": "root-port", "Upstream Port": "switch-upstream", "Downstream Port": "switch-downstream"}
VALUES: dict[str, Callable[[str], Any]] = {
    "secondary": lambda text: int(text, 16),
    "port": lambda text: next((kind for name, kind in PORTS.items() if name in text), None),
    "uncorrected": lambda text: frozenset(name for name, sign in FLAG.findall(text) if sign == "+"),
    "numa": int,
}


def acs_value(flags: str) -> int:
    return sum(ACS_BITS.get(name, 0) for name, sign in FLAG.findall(flags) if sign == "+")


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
    """One function. kind: its class as lspci names it, empty where only a command names the function.

    From cap_gen on it is what the lines below it report. Generations and lanes are None if missing or unknown.
    """

    bus_id: str
    kind: str = ""
    name: str = ""
    class_id: str = ""
    ids: tuple[str, str] | None = None
    line: int = 0
    head: str = ""
    path: tuple[str, ...] = ()
    is_gpu: bool = False
    cap_gen: int | None = None
    cap_width: int | None = None
    sta_gen: int | None = None
    sta_width: int | None = None
    acs_cap: int | None = None
    acs_ctl: int | None = None
    bars_mib: list[float] = field(default_factory=list)
    unassigned: bool = False
    secondary: int | None = None
    port: str | None = None
    numa: int | None = None
    driver: str | None = None
    modules: str = ""
    group: str | None = None
    gone: str = ""
    denied: str = ""
    uncorrected: frozenset[str] = frozenset()

    def take(self, line: str) -> None:
        """Keep what a line below the device reports."""
        if link := LINK.search(line):
            which = link["which"][3:].lower()
            setattr(self, f"{which}_gen", GENERATIONS.get(link["speed"]))
            setattr(self, f"{which}_width", int(link["width"]) or None)
        elif acs := ACS.search(line):
            setattr(self, f"acs_{acs['which'][3:].lower()}", acs_value(acs["flags"]))
        elif memory := MEMORY.search(line):
            self._take_window(memory)
        elif found := next(filter(None, (pattern.search(line) for pattern in FIELDS)), None):
            ((name, text),) = found.groupdict().items()
            value = VALUES.get(name, str)(text)
            setattr(self, name, getattr(self, name) if value is None else value)

    def _take_window(self, match: re.Match[str]) -> None:
        if match["non"]:
            return
        if match["where"].startswith("<") or "virtual" in match["more"]:
            self.unassigned = self.unassigned or match["where"] == "<unassigned>"
        else:
            self.bars_mib.append(int(match["size"]) * MIB[match["unit"]])

    @property
    def bar1_mib(self) -> float | None:
        """The largest prefetchable window: the GPU's memory. Its number differs by generation."""
        return max(self.bars_mib, default=None)

    @property
    def is_bridge(self) -> bool:
        return self.kind in ("PCI bridge", "bridge") or self.class_id == "0604"

    @property
    def is_gone(self) -> bool:
        return bool(self.gone) or "(rev ff)" in self.name

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
            now.take(line)
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


# Of its own line: the first counts.
OF_HEAD = ("bus_id", "kind", "name", "class_id", "ids", "line", "head", "path", "is_gpu")


def merged(found: Iterable[Device]) -> dict[str, Device]:
    every: dict[str, Device] = {}
    for device in found:
        known, empty = every.setdefault(device.bus_id, device), Device("")
        for name, value in vars(device).items() if known is not device else ():
            is_new = name not in OF_HEAD or not getattr(known, name) or (name == "kind" and known.kind == "bridge")
            if is_new and value != getattr(empty, name):
                setattr(known, name, value)
    return every
