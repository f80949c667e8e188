"""Printed tables of slow hosts never pass, and those of healthy hosts never accuse."""

import pytest

from gpucheck import imports
from gpucheck.run.pastes import diagnosis
from tests.diagnose import tables
from tests.diagnose.results import BAD
from tests.shared import sampled

SLOW = list(tables.pastes(tables.DEPTHS))
HEALTHY = list(tables.pastes((1.0,)))


def verdict(text):
    return diagnosis([imports.read_all(text.encode(), "paste")], sources=("paste",)).verdict


def in_sample(number, _):
    return number % 23 == 0


@pytest.mark.parametrize(("name", "text"), sampled(SLOW, in_sample))
def test_slow_table_does_not_pass(name, text):
    assert verdict(text).value != "pass"


@pytest.mark.parametrize(("name", "text"), sampled(HEALTHY, in_sample))
def test_healthy_table_is_not_accused(name, text):
    assert verdict(text) not in BAD


@pytest.mark.parametrize("model", ["NVIDIA H100 80GB HBM3", "NVIDIA L40S"])
def test_eight_gpus_without_their_links_fail(model):
    """NVLink that is down, and copies at a third of the PCIe link."""
    board = next(one for one in tables.BOARDS if one.model == model)
    part = {"NVIDIA H100 80GB HBM3": 40 / 390, "NVIDIA L40S": 8 / 26.6}[model]

    assert verdict(tables.topo(board) + tables.nvbandwidth(board, part)).value == "fail"
