"""The CPU engine for real, an engine with a short queue, and what is missing named."""

import builtins
import os

import pytest
from msgspec.structs import replace

from gpucheck.measure.engines.cpu import CpuEngine
from gpucheck.measure.running.child import engine_of, execute, open_engine, verify
from gpucheck.measure.values import CopyStep, NotTimed, Opened, Region, Setup
from gpucheck.model.copies import HOST, Failure, Flow
from gpucheck.model.device import Device

pytestmark = pytest.mark.slow

MIB = 1 << 20


def setup(engine, size=MIB):
    devices = tuple(Device(index=i, name="CPU process") for i in range(2))
    return Setup(engine=engine, devices=devices, buffer_bytes=size, parent_pid=os.getpid())


@pytest.fixture(scope="module")
def cpu():
    engine = CpuEngine()
    assert isinstance(engine.open(setup("cpu")), Opened)
    yield engine
    engine.close()


CHECK = CopyStep(
    operation="integrity",
    purpose="integrity",
    flows=(Flow(src=0, dst=1), Flow(src=1, dst=0), Flow(src=0, dst=HOST)),
    regions=(Region(offset=0, size=4096), Region(offset=4096, size=MIB // 2)),
    rounds=2,
    seed=9,
    devices=2,
)


def test_data_between_processes_is_checked_both_ways_at_once(cpu):
    checks = verify(cpu, CHECK)

    assert [(c.flow.src, c.flow.dst, c.bad_rounds) for c in checks] == [(0, 1, 0), (1, 0, 0)]
    assert all(check.bytes_verified == 2 * (4096 + MIB // 2) for check in checks)
    assert all(check.host_bytes_verified > 0 for check in checks)


def test_one_flipped_bit_in_shared_memory_is_found_and_placed(cpu, monkeypatch):
    """Broken for real: between copy and comparison a bit of the destination changes."""
    copy = cpu.copy

    def copy_and_flip(flows, region):
        copy(flows, region)
        at = cpu.size + region.offset + 8 * 77 + 2
        cpu.maps[1][at] ^= 0x10

    monkeypatch.setattr(cpu, "copy", copy_and_flip)
    there, back = verify(cpu, CHECK)

    assert (there.damage, there.mismatches, there.first, there.bad_rounds) == ("bit-flip", 4, 77 * 8, 4)
    assert not there.at_source
    assert back.damage is None


def test_memory_of_the_source_that_changed_is_no_fault_of_the_copy(cpu, monkeypatch):
    fill = cpu.fill

    def fill_and_flip(device, key, region):
        fill(device, key, region)
        if device == 0:
            cpu.maps[0][region.offset + 8 * 77 + 2] ^= 0x10

    monkeypatch.setattr(cpu, "fill", fill_and_flip)
    there, back = verify(cpu, replace(CHECK, rounds=1))

    assert (there.damage, there.bad_rounds, there.at_source) == ("bit-flip", 2, True)
    assert there.evidence[-1] == "the source holds the same wrong words after the copy"
    assert (back.damage, back.at_source) == (None, False)


@pytest.mark.parametrize(
    ("region", "written", "first"),
    [
        (Region(offset=0, size=4096), (4096, 4096 + 24), 512),
        (Region(offset=4096, size=8192), (4096 + 8192, 3 * 4096 + 4096), 1024),
        (Region(offset=4096, size=8192), (4096 - 8, 4096), -1),
    ],
    ids=["beyond the end", "a page beyond the end", "before the start"],
)
def test_a_copy_that_writes_outside_its_region_is_found(cpu, monkeypatch, region, written, first):
    """The words of the region are right, so only the guards around it show it."""
    copy = cpu.copy

    def copy_more(flows, part):
        copy(flows, part)
        for at in range(*written):
            cpu.maps[1][cpu.size + at] = 0x5A

    monkeypatch.setattr(cpu, "copy", copy_more)
    check, _ = verify(cpu, replace(CHECK, regions=(region,), rounds=1, guard=4096))
    unguarded, _ = verify(cpu, replace(CHECK, regions=(region,), rounds=1))

    count = (written[1] - written[0]) // 8
    assert (check.mismatches, check.first, check.bad_rounds, check.at_source) == (count, first * 8, 1, False)
    assert check.evidence[-1] == f"{count} words outside the region overwritten, first {first}"
    assert (check.disagreements, unguarded.bad_rounds) == (0, 0)


def test_a_receiver_that_calls_wrong_data_right_is_caught_by_the_host(cpu, monkeypatch):
    """A GPU that cannot be trusted to copy cannot be trusted to compare."""
    compare = cpu.compare
    monkeypatch.setattr(cpu, "copy", lambda flows, region: None)
    monkeypatch.setattr(cpu, "compare", lambda *a: compare(*a).__class__(words=a[2].size // 8, mismatches=0))
    check, _ = verify(cpu, CHECK)

    assert check.disagreements > 0
    assert check.damage == "untouched"


def test_flows_that_share_a_buffer_cannot_be_checked_together(cpu):
    step = CopyStep(operation="integrity", purpose="x", flows=(Flow(src=0, dst=1), Flow(src=0, dst=0)), rounds=1)

    with pytest.raises(ValueError, match="one flow for each"):
        verify(cpu, step)


@pytest.mark.parametrize(
    "flow", [Flow(src=0, dst=1), Flow(src=1, dst=1), Flow(src=HOST, dst=0), Flow(src=0, dst=1, method="staged")]
)
def test_every_way_to_copy_is_timed(cpu, flow):
    step = CopyStep(operation="bandwidth", purpose="x", flows=(flow,), size=MIB, samples=(3, 3))
    (timing,) = execute(cpu, step).timings

    assert timing.samples == 3
    assert 0.01 < timing.gb_s < 1000


def test_latency_is_of_one_copy(cpu):
    (timing,) = execute(
        cpu, CopyStep(operation="latency", purpose="latency", flows=(Flow(src=0, dst=1),), samples=(3, 3))
    ).timings

    assert (timing.size, timing.repeats) == (16, 100)
    assert timing.min_s > 0


class Queued(CpuEngine):
    """An engine whose launch queue has room for so many copies, of a millisecond each."""

    def __init__(self, room):
        self.room, self.busy, self.asked = room, 0.0, []

    def time(self, flows, size, repeats):
        self.asked.append(tuple(repeats))
        if sum(repeats) > self.room:
            raise NotTimed("copies were not queued")
        return tuple(count * 1e-3 for count in repeats)

    def latency(self, flow, repeats):
        return self.time([flow], 16, [repeats])[0] / repeats


@pytest.mark.parametrize("operation", ["bandwidth", "latency"])
def test_a_full_launch_queue_is_given_half_as_many_copies_until_they_fit(operation):
    """A longer gate only makes the launch that waits for room wait longer."""
    engine = Queued(room=5)
    step = CopyStep(operation=operation, purpose="x", flows=(Flow(src=0, dst=1),), size=MIB, samples=(3, 3))
    (timing,) = execute(engine, step).timings

    assert timing.median_s == pytest.approx(1e-3)
    assert 1 <= timing.repeats <= 5
    assert all(r == (timing.repeats,) for r in engine.asked[-3:]), "what fits is not tried anew for every sample"


def test_a_queue_without_room_for_one_copy_is_no_number():
    with pytest.raises(NotTimed):
        execute(Queued(room=0), CopyStep(operation="bandwidth", purpose="x", flows=(Flow(src=0, dst=1),), size=MIB))


@pytest.mark.parametrize(("name", "package"), [("driver", "cuda"), ("cpu", "numpy")])
def test_a_missing_package_is_named(monkeypatch, name, package):
    real = builtins.__import__

    def without(wanted, *rest):
        if wanted.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(wanted, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    answer = open_engine(engine_of(name), setup(name))

    assert isinstance(answer, Failure)
    assert (answer.kind, answer.detail) == ("missing-package", package)
