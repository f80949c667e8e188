"""InfiniBand and RoCE inside a container: devices, the library that NCCL loads, locked memory."""

import pytest
from msgspec.structs import replace

from gpucheck.images.judge import evaluate, evaluate_network
from gpucheck.model import Verdict
from tests.images.inside import CPU_IMAGE, ON_P100, OWN

WITH_RDMA = replace(ON_P100, own=replace(OWN, rdma=("uverbs0",), verbs="loaded"), memlock_bytes=-1)
NO_VERBS = "libibverbs.so.1: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("values", "verdict", "words"),
    [
        (WITH_RDMA, Verdict.PASS, "libibverbs loads"),
        (replace(WITH_RDMA, own=replace(WITH_RDMA.own, verbs=NO_VERBS)), Verdict.WARN, "does not load"),
        (replace(WITH_RDMA, memlock_bytes=64 * 1024), Verdict.WARN, "64 KiB"),
        (replace(WITH_RDMA, memlock_bytes=None), Verdict.UNKNOWN, "limit unknown"),
        (replace(ON_P100, rdma_on_host=("mlx5_0",)), Verdict.SKIP, "no /dev/infiniband"),
    ],
)
def test_what_keeps_nccl_from_the_network_is_told(values, verdict, words):
    (finding,) = evaluate_network(values)

    assert (finding.verdict, words in str(finding.seen)) == (verdict, True), finding.seen


@pytest.mark.parametrize(
    "values", [ON_P100, CPU_IMAGE, replace(WITH_RDMA, own=replace(WITH_RDMA.own, error="signal 11")), WITH_RDMA]
)
def test_nothing_to_say_is_no_finding(values):
    """Without a device, in a CPU build, after a lost self-report, and in a quick look."""
    findings = [f for f in evaluate(values, quick=values is WITH_RDMA) if "RDMA" in str(f.wanted)]

    assert findings == []
