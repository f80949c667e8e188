"""Memory of one GPU that another one imports by a fabric handle, as GPUs of other hosts of the NVLink domain do.

Source: Virtual Memory Management of the CUDA driver API. A fabric handle needs an IMEX channel of this user, also
within one process: without one cuMemCreate returns 800. NCCL makes the same calls before it uses NVLink between hosts.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from gpucheck.measure.engines.cuda_errors import kind_of
from gpucheck.measure.engines.driver.calls import Calls, CudaError
from gpucheck.measure.engines.driver.gpu import CudaGpu
from gpucheck.measure.engines.protocol import NotShared


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
