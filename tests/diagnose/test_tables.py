"""Results of slow hosts never pass, and those of healthy hosts never accuse."""

import pytest

from gpucheck.run.pastes import diagnosis
from tests.diagnose import tables
from tests.diagnose.results import BAD
from tests.shared import sampled

SLOW = list(tables.measurements(tables.DEPTHS))
HEALTHY = list(tables.measurements((1.0,)))


def verdict(seen):
    return diagnosis([], seen, sources=("paste",)).verdict


def in_sample(number, _):
    return number % 23 == 0


@pytest.mark.parametrize(("name", "seen"), sampled(SLOW, in_sample))
def test_slow_table_does_not_pass(name, seen):
    assert verdict(seen).value != "pass"


@pytest.mark.parametrize(("name", "seen"), sampled(HEALTHY, in_sample))
def test_healthy_table_is_not_accused(name, seen):
    assert verdict(seen) not in BAD


@pytest.mark.parametrize("model", ["NVIDIA H100 80GB HBM3", "NVIDIA L40S"])
def test_eight_gpus_without_their_links_fail(model):
    """NVLink that is down, and copies at a third of the PCIe link."""
    board = next(one for one in tables.BOARDS if one.model == model)
    part = {"NVIDIA H100 80GB HBM3": 40 / 390, "NVIDIA L40S": 8 / 26.6}[model]

    assert verdict(tables.seen(board, "nvbandwidth", part, topology=True)).value == "fail"
