"""What is measured: a GPU as NVML lists it, a MIG instance of one, or a CPU process."""

import msgspec


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device of copies or of computing. index: that of the GPU in NVML, or the number of a CPU process."""

    index: int
    name: str
    bus_id: str | None = None
    uuid: str | None = None
    numa_node: int | None = None

    @property
    def is_gpu(self) -> bool:
        return self.bus_id is not None

    @property
    def is_mig(self) -> bool:
        """Return whether it is a MIG instance, the only device that a process may see."""
        return (self.uuid or "").startswith("MIG-")

    @property
    def subject(self) -> str:
        """Return the subject of its findings; CPU processes are the host."""
        return f"gpu:{self.bus_id}" if self.bus_id else "host"

    @property
    def label(self) -> str:
        return self.bus_id or f"cpu{self.index}"
