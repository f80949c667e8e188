"""How many NVLinks join two GPUs: direct links by the peer's bus id, or through NVSwitch."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpucheck.model.host.hardware import NVSWITCH, Gpu, NvLink, PciDevice


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
