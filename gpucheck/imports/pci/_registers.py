"""Lines of lspci -vvv below a device: links, base address registers, Access Control Services, error registers."""

import re
from dataclasses import dataclass, field

from gpucheck.imports._regex import regex

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
ERRORS = regex(r"^\s*(?P<which>UESta|CESta):\s*(?P<flags>\S.*)")
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
    corrected: frozenset[str] = frozenset()

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
    """The raw register that lspci spelled out."""
    return sum(ACS_BITS.get(name, 0) for name, sign in FLAG.findall(flags) if sign == "+")


def _link(found: Registers, match: re.Match[str]) -> None:
    generation, width = GENERATIONS.get(match["speed"]), int(match["width"]) or None
    if match["which"] == "LnkCap":
        found.cap_gen, found.cap_width = generation, width
    else:
        found.sta_gen, found.sta_width = generation, width


def _acs(found: Registers, match: re.Match[str]) -> None:
    value = acs_value(match["flags"])
    if match["which"] == "ACSCap":
        found.acs_cap = value
    else:
        found.acs_ctl = value


def _memory(found: Registers, match: re.Match[str]) -> None:
    if match["non"]:
        return
    if match["where"].startswith("<") or "virtual" in match["more"]:
        found.unassigned = found.unassigned or match["where"] == "<unassigned>"
        return
    found.bars_mib.append(int(match["size"]) * MIB[match["unit"]])


def _errors(found: Registers, match: re.Match[str]) -> None:
    names = frozenset(name for name, sign in FLAG.findall(match["flags"]) if sign == "+")
    if match["which"] == "UESta":
        found.uncorrected = names
    else:
        found.corrected = names


def _buses(found: Registers, match: re.Match[str]) -> None:
    found.buses = int(match[2], 16), int(match[3], 16)


def _express(found: Registers, match: re.Match[str]) -> None:
    found.port = next((kind for name, kind in PORTS.items() if name in match["type"]), found.port)


_READERS = ((LINK, _link), (ACS, _acs), (MEMORY, _memory), (BUSES, _buses), (EXPRESS, _express), (ERRORS, _errors))
# Lines that hold one value, by the field that keeps it; a line without a group is a mark.
_FIELDS = {
    "numa": NUMA, "driver": DRIVER, "modules": MODULES, "group": GROUP, "gone": GONE, "denied": DENIED
}  # fmt: skip
