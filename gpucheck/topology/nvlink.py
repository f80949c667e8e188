"""How many NVLinks join two GPUs: direct links by the peer's bus id, or through NVSwitch."""

from collections import Counter
from typing import NamedTuple

from gpucheck.model.hardware import Gpu


class Joint(NamedTuple):
    """links: what both ends agree on. ends: what each end says by itself."""

    links: int
    ends: tuple[int, int]

    @property
    def agreed(self) -> bool:
        """Both ends count the same."""
        return self.ends[0] == self.ends[1]


class Ends(NamedTuple):
    """The active links of one GPU, counted once so that many pairs can ask.

    direct: by the peer's bus id. unnamed: links that hide their peer. switch: links to NVSwitch.
    """

    bus_id: str
    direct: Counter[str]
    unnamed: int
    switch: int


def ends_of(gpu: Gpu) -> Ends:
    """Count the active links of a GPU by where they lead."""
    active = [link for link in gpu.nvlinks if link.active]
    direct = Counter(
        link.remote_bus_id.lower() for link in active if link.remote_bus_id and link.remote_kind in ("gpu", None)
    )
    unnamed = sum(link.remote_bus_id is None and link.remote_kind in (None, "gpu", "unknown") for link in active)
    return Ends(gpu.pci_bus_id.lower(), direct, unnamed, sum(link.remote_kind == "switch" for link in active))


def joint(a: Gpu, b: Gpu) -> Joint:
    """The NVLinks between two GPUs; no links where there are none."""
    return meet(ends_of(a), ends_of(b))


def meet(a: Ends, b: Ends) -> Joint:
    """The NVLinks between two GPUs.

    Direct links win over a switch. An end that hides its peers (remote id not told, as in some virtual machines) is
    believed as far as its unnamed active links go. Through NVSwitch every port reaches every GPU, so the GPU with fewer
    active switch links sets the count: that pair has no reason to have equal ends.
    """
    ends = a.direct[b.bus_id], b.direct[a.bus_id]
    if any(ends):
        links = min(max(ends), ends[0] + a.unnamed, ends[1] + b.unnamed)
        return Joint(links, (max(ends[0], links), max(ends[1], links)))
    through = min(a.switch, b.switch)
    return Joint(through, (through, through))
