"""What else is known about the host while its links are judged: from NVML and sysfs, before and during the copies."""

from collections.abc import Iterator, Sequence

import msgspec

from gpucheck.model import Gpu, NvmlReading, PciDevice

REDIRECTING = 0x04 | 0x08 | 0x20  # ACS request redirect, completion redirect, egress control


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """None is "not known". kind: what the devices are. virtual: the hypervisor.

    refused: unordered pairs, by position, that the driver grants no peer access, with its word (``GNS``).
    redirecting: bus ids of bridges whose ACS register sends peer traffic up to the root.
    before, during, after: NVML readings around the copies.
    """

    kind: str = "gpu"
    virtual: str | None = None
    refused: dict[tuple[int, int], str] = msgspec.field(default_factory=dict)
    iommu_translates: bool | None = None
    redirecting: tuple[str, ...] | None = None
    before: NvmlReading | None = None
    during: tuple[NvmlReading, ...] = ()
    after: NvmlReading | None = None


def iommu_translates(gpus: Sequence[Gpu], pci: Sequence[PciDevice]) -> bool | None:
    """Whether an IOMMU translates what the GPUs send; None where no GPU could be asked."""
    types = [device.iommu_type for device in _of(gpus, pci)]
    if not types:
        return None
    return any((kind or "").startswith("DMA") for kind in types)


def redirecting(pci: Sequence[PciDevice]) -> tuple[str, ...] | None:
    """The bridges that redirect; None where no bridge's registers could be read."""
    read = [device for device in pci if device.kind is not None and device.config_readable]
    if not read:
        return None
    return tuple(device.bus_id for device in read if device.acs and device.acs.control & REDIRECTING)


def refused(gpus: Sequence[Gpu], reading: NvmlReading) -> dict[tuple[int, int], str]:
    """Pairs that NVML does not call OK for reading and writing."""
    place = {gpu.pci_bus_id: i for i, gpu in enumerate(reading.gpus)}
    answer = {}
    for i, a in enumerate(gpus):
        for j, b in enumerate(gpus):
            words = [
                _at(reading.p2p.get(what, ()), place[a.pci_bus_id], place[b.pci_bus_id]) for what in ("read", "write")
            ]
            bad = [word for word in words if word not in (None, "OK", "X")]
            if i != j and bad:
                answer[min(i, j), max(i, j)] = str(bad[0])
    return answer


def _at(matrix: tuple[tuple[str | None, ...], ...], i: int, j: int) -> str | None:
    return matrix[i][j] if i < len(matrix) and j < len(matrix[i]) else None


def _of(gpus: Sequence[Gpu], pci: Sequence[PciDevice]) -> Iterator[PciDevice]:
    ids = {gpu.pci_bus_id.lower() for gpu in gpus}
    return (device for device in pci if device.bus_id.lower() in ids)
