"""Three GPUs and more: all at once, and more pairs than one GPU maps peers."""

from itertools import permutations

import pytest

from gpucheck.measure.running.child import answer, verify
from gpucheck.measure.values import CopyStep, Region
from gpucheck.model.copies import Failure, Flow

pytestmark = pytest.mark.gpu

MIB = 1 << 20
SIZE = 64 * MIB
MOST = 9  # GPUs of which each maps all others


@pytest.fixture(autouse=True)
def many(devices):
    if len(devices) < 3:
        pytest.skip(f"this host has {len(devices)} GPUs")


def test_every_pair_delivers_every_word(engine, devices):
    """Pair after pair in one process: without NVSwitch a GPU maps eight peers, and gives them back after each step."""
    for a, b in permutations(range(len(devices)), 2):
        step = CopyStep(
            operation="integrity",
            purpose="integrity",
            flows=(Flow(src=a, dst=b),),
            regions=(Region(offset=4096, size=MIB),),
            devices=len(devices),
        )
        (check,) = verify(engine, step)
        assert check.bad_rounds == 0, f"GPU {a} to {b}"


def test_a_ring_keeps_every_word_under_load(engine, devices):
    flows = tuple(Flow(src=a, dst=(a + 1) % len(devices)) for a in range(len(devices)))
    region = Region(offset=0, size=SIZE)
    step = CopyStep(operation="integrity", purpose="x", flows=flows, regions=(region,), rounds=2, devices=len(devices))

    assert [check.bad_rounds for check in verify(engine, step)] == [0] * len(devices)


def test_all_to_all_is_timed_or_needs_more_peers_than_there_are(engine, devices, kept):
    flows = tuple(Flow(src=a, dst=b) for a, b in permutations(range(len(devices)), 2))
    step = CopyStep(operation="bandwidth", purpose="all to all", flows=flows, size=SIZE)
    found = answer(engine, step)
    if isinstance(found, Failure):
        assert (found.kind, len(devices) > MOST) == ("no-peers-left", True), found
    else:
        kept["all to all, slowest copy GB/s"] = round(min(timing.gb_s for timing in found.timings), 2)
        assert len(found.timings) == len(flows)
