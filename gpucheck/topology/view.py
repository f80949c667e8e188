"""What NVML and sysfs report about the pairs of a host, by place in NVML's order."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import NamedTuple, TypeVar

from gpucheck.knowledge import find_gpu, gpu_by_pci_id
from gpucheck.model.host.hardware import NVSWITCH, Gpu, NvLink, PciDevice
from gpucheck.model.host.readings import NvmlReading
from gpucheck.topology.pcie import classify


class Joint(NamedTuple):
    """links: what both ends agree on. ends: what each end reports by itself."""

    links: int
    ends: tuple[int, int]


class Ends(NamedTuple):
    """The active links of one GPU, counted once so that many pairs can ask.

    direct: by the peer's bus id. switches: by the bus id of an NVSwitch, or NVSWITCH for one without.
    hidden: links to something that this host cannot see, and that NVML does not call a GPU; unnamed: links without a
    bus id.
    """

    bus_id: str
    direct: Counter[str]
    switches: Counter[str]
    hidden: int
    unnamed: int


class NvLinks:
    """The NVLinks between the GPUs of one host, by place in NVML's order.

    pci: the functions that the host can see. A link to a GPU among them that NVML does not list (lost, or not part of
    the container) joins nothing. A link to what the host cannot see leads to an NVSwitch, as in a virtual machine
    without the switches, and as NCCL assumes; not so on a GPU with direct links, for no board has both.
    """

    def __init__(self, gpus: Sequence[Gpu], pci: Iterable[PciDevice] = ()) -> None:
        own = {gpu.pci_bus_id.lower() for gpu in gpus}
        others = {device.bus_id.lower() for device in pci if not device.is_nvswitch} - own
        self.ends = [_ends(gpu, own, others) for gpu in gpus]
        named = {peer for ends in self.ends for peer in ends.direct}
        self.meshed = [bool(ends.direct) or ends.bus_id in named for ends in self.ends]

    def switches(self, i: int) -> Counter[str]:
        """Return the links of a GPU that lead to NVSwitches, by the switch."""
        ends = self.ends[i]
        return ends.switches + Counter({NVSWITCH: 0 if self.meshed[i] else ends.hidden})  # + drops zeros

    def between(self, i: int, j: int) -> Joint:
        """Return the NVLinks between two GPUs; zero links if there are none.

        Direct links win over a switch. An end that hides its peers (no remote id, as in some virtual machines) is
        counted with its unnamed active links. Through NVSwitch every port reaches every GPU, so the GPU with
        fewer active switch links sets the count: that pair has no reason to have equal ends.
        """
        a, b = self.ends[i], self.ends[j]
        ends = a.direct[b.bus_id], b.direct[a.bus_id]
        if any(ends):
            links = min(max(ends), ends[0] + a.unnamed, ends[1] + b.unnamed)
            return Joint(links, (max(ends[0], links), max(ends[1], links)))
        through = min(self.switches(i).total(), self.switches(j).total())
        return Joint(through, (through, through))


def _ends(gpu: Gpu, own: set[str], others: set[str]) -> Ends:
    direct: Counter[str] = Counter()
    switches: Counter[str] = Counter()
    hidden = unnamed = 0
    for link in gpu.nvlinks:
        end = _far_end(link, own, others) if link.active else None
        if end is None:
            continue
        if link.remote_kind == "switch":
            switches[end] += 1
        elif end == NVSWITCH:
            unnamed += link.remote_bus_id is None
            hidden += link.remote_bus_id is not None or link.remote_kind != "gpu"
        else:
            direct[end] += 1
    return Ends(gpu.pci_bus_id.lower(), direct, switches, hidden, unnamed)


def _far_end(link: NvLink, own: set[str], others: set[str]) -> str | None:
    """Return the bus id of a GPU of this host or of a switch, NVSWITCH for what cannot be seen, None for the rest."""
    bus_id = (link.remote_bus_id or "").lower()
    if link.remote_kind == "switch":
        return bus_id or NVSWITCH
    if bus_id in own:
        return bus_id
    return None if link.remote_kind == "npu" or bus_id in others else NVSWITCH


STATE_CALL = "nvmlDeviceGetNvLinkState"
PAST = (2, 3)  # NVML: invalid argument, not supported: there is no such link
PARAMS = "/proc/driver/nvidia/params"
FAR_END = ("nvmlDeviceGetNvLinkRemotePciInfo", "nvmlDeviceGetNvLinkRemoteDeviceType")
DISTANCE = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5}


def nvlink_limit(params: str | None) -> int | None:
    """Return how many NVLinks of a GPU the options of the driver allow, None for all. params: text of PARAMS."""
    options = dict(re.findall(r"^(\w+): *(\d+)$", params or "", re.MULTILINE))
    if int(options.get("NvLinkDisable", 0)):
        return 0
    return int(options.get("RmNvlinkBandwidthLinkCount", 0)) or None


class Problem(NamedTuple):
    """A code about pairs, with the two readings that it compares, or the call and its return code."""

    code: str
    one: str = ""
    other: str = ""


class View:
    """Both sources. Matrices are read by place, never by NVML's index: a GPU that NVML lost leaves a gap there."""

    def __init__(self, reading: NvmlReading, devices: dict[str, PciDevice]) -> None:
        self.reading = reading
        self.devices = devices
        self.nvlinks = NvLinks(reading.gpus, devices.values())
        self._unknown = [self._why_unknown(gpu) for gpu in reading.gpus]
        self.pairs = tuple(combinations(range(len(reading.gpus)), 2))

    def gpus(self, i: int, j: int) -> tuple[Gpu, Gpu]:
        return self.reading.gpus[i], self.reading.gpus[j]

    def subject(self, i: int, j: int) -> str:
        a, b = self.gpus(i, j)
        return f"pair:{a.pci_bus_id}-{b.pci_bus_id}"

    def device(self, i: int) -> PciDevice | None:
        return self.devices.get(self.reading.gpus[i].pci_bus_id.lower())

    def ancestors(self, i: int, j: int) -> tuple[str | None, str | None]:
        return _at(self.reading.ancestors, i, j), _at(self.reading.ancestors, j, i)

    def ancestor(self, i: int, j: int) -> str | None:
        """Return NVML's class: the farther one where it reports two, so that the matrix stays symmetric."""
        reported = [cls for cls in self.ancestors(i, j) if cls is not None]
        return max(reported, key=lambda cls: DISTANCE.get(cls, 0), default=None)

    def sysfs(self, i: int, j: int) -> str | None:
        a, b = self.device(i), self.device(j)
        return classify(a, b) if a and b else None

    def cell(self, i: int, j: int) -> str | None:
        links = self.joint(i, j).links
        return f"NV{links}" if links else self.ancestor(i, j) or self.sysfs(i, j)

    def joint(self, i: int, j: int) -> Joint:
        return self.nvlinks.between(i, j)

    def unknown_links(self, i: int, j: int) -> Problem | None:
        """Return why the links of a GPU of the pair are not known in full, if it may have any."""
        return self._unknown[i] or self._unknown[j]

    def _why_unknown(self, gpu: Gpu) -> Problem | None:
        model = gpu_by_pci_id(gpu.device_id) or find_gpu(gpu.name)
        if model is not None and model.nvlink is None:
            return None
        start = f"link:{gpu.pci_bus_id}/"
        own = [gap for gap in self.reading.gaps if gap.subject.startswith(start)]
        nameless = [
            link for link in gpu.nvlinks if link.active and link.remote_bus_id is None and link.remote_kind != "switch"
        ]
        names = {f"{start}{link.link}" for link in nameless}
        refused = [gap for gap in own if gap.call == STATE_CALL and gap.code not in PAST]
        # Not supported, not in this library: what a guest gets whose switches are hidden from it.
        refused += [gap for gap in own if gap.call in FAR_END and not gap.absent and gap.subject in names]
        if refused:
            return Problem("topology.link-call-failed", refused[0].call, str(refused[0].code))
        if any(link.remote_kind == "gpu" for link in nameless):
            absent = any(gap.call in FAR_END and gap.subject in names for gap in own)
            return Problem("topology.far-end-not-offered" if absent else "topology.far-end-not-reported")
        return None

    def p2p(self, i: int, j: int) -> str | None:
        return p2p_status(self.reading, (i, j))

    def refused(self, i: int, j: int, cls: str | None) -> bool:
        """Whether copies of a PCIe pair are staged through host memory: the path's rate does not apply to them."""
        return cls in DISTANCE and self.p2p(i, j) not in (None, "OK")

    def compared(self) -> int:
        return sum(self.ancestor(*pair) is not None and self.sysfs(*pair) is not None for pair in self.pairs)


def _at(matrix: tuple[tuple[str | None, ...], ...], i: int, j: int) -> str | None:
    return matrix[i][j] if i < len(matrix) and j < len(matrix[i]) else None


def p2p_status(nvml: NvmlReading, pair: tuple[int, int], kinds: Sequence[str] = ("read", "write")) -> str | None:
    """Return the first status that is not OK, both ways, by place in NVML's order; OK only when all of them are.

    None where a direction was not reported: that one direction works proves nothing of the other.
    """
    reported = [_at(nvml.p2p[kind], *at) for kind in kinds if kind in nvml.p2p for at in (pair, pair[::-1])]
    bad = next((status for status in reported if status not in ("OK", None)), None)
    return bad or (None if not reported or None in reported else "OK")


Member = TypeVar("Member", bound=Hashable)


def islands(members: Iterable[Member], joined: Iterable[tuple[Member, Member]]) -> list[frozenset[Member]]:
    group = {member: frozenset([member]) for member in members}
    for one, other in joined:
        whole = group[one] | group[other]
        group.update(dict.fromkeys(whole, whole))
    return list(dict.fromkeys(group.values()))
