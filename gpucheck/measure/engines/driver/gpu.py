"""One GPU for the driver engine: its primary context, two buffers, kernels, streams and events."""

import ctypes
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

from gpucheck.measure.engines.driver.calls import Calls, CudaError, hidden, not_opened
from gpucheck.measure.values import MIB, NotShared, kind_of
from gpucheck.model.device import Device

NODES = Path("/sys/devices/system/node")


def cpus_of(node: int, nodes: Path = NODES) -> set[int]:
    """Return the CPUs of a NUMA node; empty if the kernel does not list them. The format is ``0-31,64-95``."""
    try:
        text = (nodes / f"node{node}" / "cpulist").read_text().strip()
    except OSError:
        return set()
    spans = [part.partition("-") for part in text.split(",") if part]
    return {cpu for first, _, last in spans for cpu in range(int(first), int(last or first) + 1)}


def nodes(folder: Path = NODES) -> tuple[int, ...]:
    """Return the NUMA nodes with CPUs that this process may use."""
    found = sorted(int(node.name[4:]) for node in folder.glob("node*") if node.name[4:].isdigit())
    return tuple(node for node in found if cpus_of(node, folder) & os.sched_getaffinity(0))


@contextmanager
def on_node(node: int | None, nodes: Path = NODES) -> Iterator[None]:
    """Run on the CPUs of this node, if this process may use them; on any CPU if that is unknown."""
    allowed = os.sched_getaffinity(0)
    near = cpus_of(node, nodes) & allowed if node is not None else set()
    if not near:
        yield
        return
    os.sched_setaffinity(0, near)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


PTX = Path(__file__).with_name("kernels.ptx")
# Arguments with which a kernel does nothing.
KERNELS = {
    "fill": "note 0 0",
    "poison": "note 0 0",
    "compare": "note 0 0 note 0",
    "copy": "note note 0",
    "chain": "note 0 0",
    "chase": "note 0 note",
    "spin": "0",
}
THREADS = 256  # of a block
BLOCKS_PER_SM = 16
# Host copies use two pieces in turn. With NVLink-C2C the gap between two is negligible at 400 GB/s, and both exceed the
# last-level cache of a Grace CPU (114 MB). Elsewhere PCIe is the limit, and pinned memory of many GPUs is scarce.
HOST_PIECE, HOST_PIECES = (64 if platform.machine() == "aarch64" else 32) * MIB, 2
READ_BYTES = MIB
NOTE_WORDS = 3 + 2 * 64  # of the kernel "compare": 64 wrong words are kept


class Line(NamedTuple):
    """A stream, and the two events that time its copies."""

    stream: Any
    start: Any
    end: Any


class CudaGpu:
    """One GPU. Raises NotOpened. Every method that queues work makes this GPU's context the current one."""

    def __init__(self, calls: Calls, device: Device) -> None:
        self.calls, self.about = calls, device
        try:
            self.device = calls("cuDeviceGetByPCIBusId", (device.bus_id or "").encode())
        except CudaError as error:
            raise hidden(device) from error
        names = calls.names
        try:
            self.context = calls("cuDevicePrimaryCtxRetain", self.device)
            self.use()
            attribute = names.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
            self.most_blocks = BLOCKS_PER_SM * max(1, calls("cuDeviceGetAttribute", attribute, self.device))
            self.fabric_handles = self._fabric_handles()
            self._module = calls("cuModuleLoadData", PTX.read_bytes() + b"\0")
            self._kernels = {k: calls("cuModuleGetFunction", self._module, k.encode()) for k in KERNELS}
            self._lines: list[Line] = []
            self.note = int(calls("cuMemAlloc", NOTE_WORDS * 8))
            # A kernel is loaded when it is first launched, which waits for the context: not with a closed gate.
            for kernel in KERNELS:
                self.launch(kernel, 1, *(self.note if word == "note" else 0 for word in KERNELS[kernel].split()))
            self.wait()
        except CudaError as error:
            raise not_opened(error, f"GPU {device.index} ({device.bus_id})") from error
        self.source = self.target = 0
        self._pinned: dict[tuple[int | None, int, bool], int] = {}

    def _fabric_handles(self) -> bool | None:
        """Whether the driver offers fabric handles here; None before CUDA 12.3, whose drivers reject the attribute."""
        attribute = self.calls.names.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED
        try:
            return bool(self.calls("cuDeviceGetAttribute", attribute, self.device))
        except CudaError:
            return None

    def use(self) -> None:
        """Make this context the current one of the thread."""
        self.calls("cuCtxSetCurrent", self.context)

    def allocate(self, size: int) -> None:
        """Allocate both buffers. Raises CudaError; then neither is allocated."""
        self.use()
        self.source = int(self.calls("cuMemAlloc", size))
        try:
            self.target = int(self.calls("cuMemAlloc", size))
        except CudaError:
            self.release()
            raise

    def release(self) -> None:
        self.use()
        for address in (self.source, self.target):
            if address:
                self.calls("cuMemFree", address)
        self.source = self.target = 0

    def pinned(self, node: int | None, size: int = READ_BYTES, *, read: bool = False) -> int:
        """Return the address of so much pinned host memory on this NUMA node; None: the GPU's node.

        read: by copies to the GPU, whose memory is not that of copies to the host at the same time.
        """
        node = self.about.numa_node if node is None else node
        if (node, size, read) not in self._pinned:
            self.use()
            with on_node(node):
                address = self.calls("cuMemHostAlloc", size, self.calls.names.CU_MEMHOSTALLOC_PORTABLE)
            self._pinned[node, size, read] = int(address)
        return self._pinned[node, size, read]

    def line(self, number: int = 0) -> Line:
        """Return the stream with this number, created on first use."""
        while len(self._lines) <= number:
            self._lines.append(self.new_line())
        return self._lines[number]

    def new_line(self) -> Line:
        self.use()
        stream = self.calls("cuStreamCreate", self.calls.names.CUstream_flags.CU_STREAM_NON_BLOCKING)
        return Line(stream, self.calls("cuEventCreate", 0), self.calls("cuEventCreate", 0))

    def launch(self, kernel: str, threads: int, *arguments: int, line: Line | None = None) -> None:
        """Queue a kernel. threads: number of work items; 1 is one block of one thread."""
        stream = (line or self.line()).stream
        blocks = min(max(1, -(-threads // THREADS)), self.most_blocks)
        types = (ctypes.c_uint64,) * len(arguments)
        shape = (1, 1, 1, 1, 1, 1) if threads == 1 else (blocks, 1, 1, THREADS, 1, 1)
        self.use()
        self.calls("cuLaunchKernel", self._kernels[kernel], *shape, 0, stream, (arguments, types), 0)

    def wait(self) -> None:
        """Wait for all queued work of this GPU."""
        for line in self._lines:
            self.calls("cuStreamSynchronize", line.stream)

    def read(self, address: int, words: int) -> list[int]:
        """Return words of this GPU's memory, by a copy to the host."""
        found: list[int] = []
        self.use()
        for done in range(0, words * 8, READ_BYTES):
            size = min(READ_BYTES, words * 8 - done)
            pinned = self.pinned(None)
            self.calls("cuMemcpyDtoHAsync", pinned, address + done, size, self.line().stream)
            self.calls("cuStreamSynchronize", self.line().stream)
            found += (ctypes.c_uint64 * (size // 8)).from_address(pinned)
        return found

    def write(self, address: int, words: list[int]) -> None:
        """Write a few words to this GPU's memory."""
        self.use()
        pinned = self.pinned(None)
        ctypes.memmove(pinned, (ctypes.c_uint64 * len(words))(*words), len(words) * 8)
        self.calls("cuMemcpyHtoDAsync", address, pinned, len(words) * 8, self.line().stream)
        self.calls("cuStreamSynchronize", self.line().stream)


ALREADY_ENABLED, NOT_ENABLED = 704, 705
Pair = tuple[int, int]


class Peers:
    """offered: ordered pairs (accessing GPU, GPU with the memory), by position. enabled: pairs with peer access."""

    def __init__(self, calls: Calls, gpus: Sequence[CudaGpu]) -> None:
        self._calls, self._gpus = calls, gpus
        places = permutations(range(len(gpus)), 2)
        self.offered = {(a, b) for a, b in places if calls("cuDeviceCanAccessPeer", gpus[a].device, gpus[b].device)}
        self.enabled: set[Pair] = set()

    def only(self, pairs: Iterable[Pair]) -> None:
        """Enable both directions of these pairs if supported, and disable all others. Raises CudaError.

        A GPU without NVSwitch maps at most eight peers, so a pair has peer access only during its step.
        """
        wanted = {way for a, b in pairs for way in ((a, b), (b, a))} & self.offered
        for way in sorted(self.enabled - wanted):
            self._switch("cuCtxDisablePeerAccess", way, NOT_ENABLED)
            self.enabled.discard(way)
        for way in sorted(wanted - self.enabled):
            self._switch("cuCtxEnablePeerAccess", way, ALREADY_ENABLED)
            self.enabled.add(way)

    def _switch(self, call: str, way: Pair, done_before: int) -> None:
        accessing, owner = (self._gpus[place] for place in way)
        accessing.use()
        try:
            self._calls(call, owner.context, *((0,) if call == "cuCtxEnablePeerAccess" else ()))
        except CudaError as error:
            if error.code != done_before:
                raise


# Source: Virtual Memory Management of the CUDA driver API. A fabric handle needs an IMEX channel of this user, also
# within one process: without one cuMemCreate returns 800. NCCL makes the same calls before it uses NVLink between
# hosts.
@contextmanager
def imported(calls: Calls, owner: CudaGpu, user: CudaGpu, size: int) -> Iterator[int]:
    """The address of ``size`` bytes or more on ``owner`` that both GPUs may use. Raises NotShared, CudaError.

    Nothing may use the address any more at the end, which releases all of it, as an error on the way does.
    """
    with ExitStack() as made:
        try:
            address = _mapped(calls, made, owner, user, size)
        except CudaError as error:
            if kind_of(error.code) != "refused":
                raise
            raise NotShared(str(error), error.code) from error
        yield address


def _mapped(calls: Calls, made: ExitStack, owner: CudaGpu, user: CudaGpu, size: int) -> int:
    names = calls.names

    def at_end(call: str, *arguments: Any) -> None:
        def release() -> None:
            with suppress(CudaError):  # after a copy that failed every call does
                calls(call, *arguments)

        made.callback(release)

    fabric = names.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_FABRIC
    wanted = names.CUmemAllocationProp()
    wanted.type = names.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.requestedHandleTypes = fabric
    wanted.location = _location(names, owner)
    least = names.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    grain = calls("cuMemGetAllocationGranularity", wanted, least)
    size = -(-size // grain) * grain
    own = calls("cuMemCreate", size, wanted, 0)
    at_end("cuMemRelease", own)
    handle = bytes(calls("cuMemExportToShareableHandle", own, fabric, 0).data)
    there = calls("cuMemImportFromShareableHandle", handle, fabric)
    at_end("cuMemRelease", there)
    address = int(calls("cuMemAddressReserve", size, 0, 0, 0))
    at_end("cuMemAddressFree", address, size)
    calls("cuMemMap", address, size, 0, there, 0)
    at_end("cuMemUnmap", address, size)
    users = []
    for gpu in (owner, user):
        access = names.CUmemAccessDesc()
        access.location = _location(names, gpu)
        access.flags = names.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        users.append(access)
    calls("cuMemSetAccess", address, size, users, len(users))
    return address


def _location(names: Any, gpu: CudaGpu) -> Any:
    place = names.CUmemLocation()
    place.type, place.id = names.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, int(gpu.device)
    return place
