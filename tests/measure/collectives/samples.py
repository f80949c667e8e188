"""Results, endings and messages that the tests of collectives share."""

import json
from collections.abc import Sequence
from typing import Any

from gpucheck.checks import checks_of
from gpucheck.measure.collectives.rank import RankReport
from gpucheck.measure.collectives.run import Ended, ends
from gpucheck.model.answer import Clock
from gpucheck.model.collectives import Collected, CollectiveResult, CollectivesReport
from gpucheck.model.facts import Facts
from gpucheck.processes.ranks.nccl_log import Taken
from gpucheck.processes.ranks.supervisor import RankEnd, Reason
from tests.fakes import facts
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


def ended(reason: Reason = "finished", *ranks: dict[str, Any], seconds: float = 1.0, taken: Taken = Taken()) -> Ended:  # noqa: B008 - immutable
    """A run that ended so. ranks: what is known of each; at is its last progress."""
    ends = []
    for number, values in enumerate(ranks):
        known = {**values, "progress": json.dumps(values.get("at", "start")).encode()}
        known.pop("at", None)
        ends.append(RankEnd[RankReport](rank=number, **known))
    return Ended(reason, tuple(ends), seconds, 0.0, taken=taken)


FINISHED, NVLS = ended(), ended(taken=Taken(algorithms={"AllReduce": ("NVLS",)}))


def stated(run: Ended, results: Sequence[CollectiveResult] = (), *, gpus=True):
    report = CollectivesReport(
        **Clock().answer(facts(), ()),
        backend="nccl" if gpus else "gloo",
        kind="",
        ranks=8,
        nodes=1,
        devices=(),
        versions={},
        results=tuple(results),
    )
    host = Facts(collected=Collected(report=report, ends=ends([run])))
    return by_check([finding for check in checks_of("collectives")[:2] for finding in check.evaluate(host)])
