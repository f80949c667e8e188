"""NVLink error counters."""

import msgspec
import pytest

from gpucheck.checks.nvlink import errors as nvlink_errors
from tests.checks.judging import PASS, WARN, judge
from tests.fakes import facts
from tests.machines import h100, reading


@pytest.mark.parametrize(
    ("counters", "verdict"),
    [({"recovery_errors": 1}, WARN), ({"crc_errors": 101}, WARN), ({"crc_errors": 40, "replay_errors": 60}, PASS)],
)
def test_links_that_repeat_or_retrain_are_named(counters, verdict):
    """Some corrected errors are normal; a recovery is not."""
    gpu = h100(0)
    zero = {"replay_errors": 0, "recovery_errors": 0, "crc_errors": 0}
    links = tuple(msgspec.structs.replace(link, **zero) for link in gpu.nvlinks)
    worn = msgspec.structs.replace(links[5], **counters)
    gpu = msgspec.structs.replace(gpu, nvlinks=(*links[:5], worn, *links[6:]))

    (finding,) = judge(nvlink_errors, facts(nvml=reading(gpu)))

    assert finding.verdict is verdict
    assert finding.evidence[0].startswith("NVLink 5: ")
