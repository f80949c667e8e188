"""How many NVLinks join two GPUs: direct links by the peer's bus id, or through NVSwitch."""

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


def joint(a: Gpu, b: Gpu) -> Joint:
    """The NVLinks between two GPUs; no links where there are none.

    Direct links win over a switch. An end that hides its peers (remote id not told, as in some virtual machines) is
    believed as far as its unnamed active links go. Through NVSwitch every port reaches every GPU, so the GPU with fewer
    active switch links sets the count: that pair has no reason to have equal ends.
    """
    ends = _direct(a, b), _direct(b, a)
    if any(ends):
        links = min(max(ends), ends[0] + _unnamed(a), ends[1] + _unnamed(b))
        return Joint(links, (max(ends[0], links), max(ends[1], links)))
    through = min(_to_switch(a), _to_switch(b))
    return Joint(through, (through, through))


def _direct(a: Gpu, b: Gpu) -> int:
    wanted = b.pci_bus_id.lower()
    return sum(
        link.active and link.remote_kind in ("gpu", None) and (link.remote_bus_id or "").lower() == wanted
        for link in a.nvlinks
    )


def _unnamed(gpu: Gpu) -> int:
    return sum(
        link.active and link.remote_bus_id is None and link.remote_kind in (None, "gpu", "unknown")
        for link in gpu.nvlinks
    )


def _to_switch(gpu: Gpu) -> int:
    return sum(link.active and link.remote_kind == "switch" for link in gpu.nvlinks)
