"""A transfer between two ranks is held to what NCCL reaches between two, and is never a failure."""

import pytest

from gpucheck.diagnose import diagnose
from gpucheck.diagnose.document import read
from gpucheck.model import Verdict

TEXT = """
gpus: {{count: 2, model: NVIDIA H100 NVL}}
matrix: [[X, NV12], [NV12, X]]
measured: {{collectives: [{{op: {}, ranks: 2, bytes: 4294967296, busbw_gb_s: {}}}]}}
"""


@pytest.mark.parametrize(
    ("op", "gb_s", "verdict"),
    [
        ("sendrecv", 180, Verdict.PASS),  # NVIDIA/nccl-tests#268, a healthy plateau
        ("sendrecv", 100, Verdict.WARN),
        ("sendrecv", 20, Verdict.WARN),
        ("all_reduce", 240, Verdict.PASS),
        ("all_reduce", 180, Verdict.WARN),
        ("all_reduce", 100, Verdict.FAIL),
    ],
)
def test_point_to_point_has_a_limit_of_its_own(op, gb_s, verdict):
    found = [one for one in diagnose(read(TEXT.format(op, gb_s))) if one.check == "collectives-bandwidth"]

    assert [one.verdict for one in found] == [verdict]
