"""Results, endings and messages that the tests of collectives share."""

from gpucheck.measure.collectives.run import Ended, gaps
from gpucheck.model.collectives import CollectiveResult
from gpucheck.processes.ranks.nccl_log import Taken
from tests.measure.benches import by_check

# As torch 2.x prints it with NCCL 2.28.9 (komikndr/raylight issue 50).
NCCL_ERROR = """\
NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3699, unhandled cuda error (run with \
NCCL_DEBUG=INFO for details), NCCL version 2.28.9
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
Cuda failure 217 'peer access is not supported between these two devices'
"""


def result(operation="all_reduce", variant="as is", **values):
    return CollectiveResult(operation=operation, size_bytes=1 << 30, variant=variant, **values)


FINISHED = Ended(reason="finished", seconds=1.0, ranks=8)
NVLS = Ended(reason="finished", seconds=1.0, ranks=8, taken=Taken(algorithms={"AllReduce": ("NVLS",)}))


def stated(ended, results=(), *, gpus=True):
    return by_check(gaps({"as is": ended}, results, gpus=gpus))
