"""The host as it was read before and during a measurement."""

import msgspec

from gpucheck.host.nvml.gauge import LinkReading
from gpucheck.model import Gpu, NvmlReading, PciDevice, Topology
from gpucheck.model.facts import Facts
from gpucheck.topology import CPUINFO
from gpucheck.topology.view import PARAMS, nvlink_limit

NEEDS = ("nvml", "pci", "system", f"text:{CPUINFO}", f"text:{PARAMS}")


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The host as it was read. gpus: the measured ones, by position. virtual: the hypervisor. nvlink_limit: links of a
    GPU that the options of the driver allow, None for all.

    before, after: NVML before and after the copies; during: links while copies ran, in order.
    """

    gpus: tuple[Gpu, ...]
    before: NvmlReading
    pci: tuple[PciDevice, ...]
    topology: Topology
    virtual: str | None = None
    cpuinfo: str | None = None
    nvlink_limit: int | None = None
    during: tuple[LinkReading, ...] = ()
    after: NvmlReading | None = None

    @classmethod
    def of(cls, facts: Facts, gpus: tuple[Gpu, ...], reading: NvmlReading, topology: Topology) -> "Scene":
        """Return the host before the copies, from facts with NEEDS."""
        return cls(
            gpus=gpus,
            before=reading,
            pci=facts.pci,
            topology=topology,
            virtual=facts.system.virtual,
            cpuinfo=facts.texts[CPUINFO],
            nvlink_limit=nvlink_limit(facts.texts[PARAMS]),
        )

    def while_copying(self, gpu: Gpu) -> list[LinkReading]:
        """Return every reading of the GPU during copies."""
        return [reading for reading in self.during if reading.bus_id == gpu.pci_bus_id]

    def afterwards(self, gpu: Gpu) -> Gpu | None:
        """Return the GPU as it was after the copies, None if it was not read then."""
        return next((one for one in (self.after.gpus if self.after else ()) if one.pci_bus_id == gpu.pci_bus_id), None)
