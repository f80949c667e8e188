"""The host as it was read before and during a measurement."""

import msgspec

from gpucheck.model import Gpu, Host, NvmlReading, PciDevice, Topology


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The host as it was read. gpus: the measured ones, by position. virtual: the hypervisor.

    before: NVML before the copies; during: while copies ran, in order.
    """

    gpus: tuple[Gpu, ...]
    before: NvmlReading
    pci: tuple[PciDevice, ...]
    topology: Topology
    virtual: str | None = None
    cpuinfo: str | None = None
    during: tuple[NvmlReading, ...] = ()

    @classmethod
    def of(cls, host: Host, gpus: tuple[Gpu, ...], reading: NvmlReading, topology: Topology) -> "Scene":
        """Read what else is known of the host before the copies."""
        return cls(
            gpus=gpus,
            before=reading,
            pci=host.pci(),
            topology=topology,
            virtual=host.system().virtual,
            cpuinfo=host.read_text("/proc/cpuinfo"),
        )

    def while_copying(self, gpu: Gpu) -> list[Gpu]:
        """Return the GPU in every reading during copies."""
        return [found for reading in self.during for found in reading.gpus if found.pci_bus_id == gpu.pci_bus_id]
