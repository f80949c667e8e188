"""The CPU engine for real, the queue of the CUDA engines on a fake of CUDA, and what is missing named."""

import builtins
import os

import pytest
from msgspec.structs import replace

from gpucheck.measure.engines.cpu import CpuEngine
from gpucheck.measure.engines.cuda.queue import CYCLES_PER_S, LEAST_S, MOST_S, TRIES, Gate, Lane, timed
from gpucheck.measure.engines.protocol import NotTimed
from gpucheck.measure.running.child import engine_of, open_engine
from gpucheck.measure.running.execute import execute
from gpucheck.measure.running.integrity import verify
from gpucheck.measure.values import HOST, Device, Failure, Flow, Opened, Region, Setup, Step

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


CHECK = Step(
    operation="integrity",
    purpose="integrity",
    flows=(Flow(src=0, dst=1), Flow(src=1, dst=0), Flow(src=0, dst=HOST)),
    regions=(Region(offset=0, size=4096), Region(offset=4096, size=MIB // 2)),
    rounds=2,
    bursts=2,
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

    def copy_and_flip(flows, region, bursts):
        copy(flows, region, bursts)
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

    def copy_more(flows, part, bursts):
        copy(flows, part, bursts)
        for at in range(*written):
            cpu.maps[1][cpu.size + at] = 0x5A

    monkeypatch.setattr(cpu, "copy", copy_more)
    check, _ = verify(cpu, replace(CHECK, regions=(region,), rounds=1, guard=4096))
    unguarded, _ = verify(cpu, replace(CHECK, regions=(region,), rounds=1))

    count = (written[1] - written[0]) // 8
    assert (check.mismatches, check.first, check.bad_rounds, check.at_source) == (count, first * 8, 1, False)
    assert check.evidence[-1] == f"{count} words outside the region overwritten, first {first}"
    assert (check.disagreements, unguarded.bad_rounds) == (0, 0)


def test_a_copy_that_does_not_happen_is_untouched(cpu, monkeypatch):
    monkeypatch.setattr(cpu, "copy", lambda flows, region, bursts: None)

    assert [check.damage for check in verify(cpu, CHECK)] == ["untouched", "untouched"]


def test_a_receiver_that_calls_wrong_data_right_is_caught_by_the_host(cpu, monkeypatch):
    """A GPU that cannot be trusted to copy cannot be trusted to compare."""
    compare = cpu.compare
    monkeypatch.setattr(cpu, "copy", lambda flows, region, bursts: None)
    monkeypatch.setattr(cpu, "compare", lambda *a: compare(*a).__class__(words=a[2].size // 8, mismatches=0))
    check, _ = verify(cpu, CHECK)

    assert check.disagreements > 0
    assert check.damage == "untouched"


def test_flows_that_share_a_buffer_cannot_be_checked_together(cpu):
    step = Step(operation="integrity", purpose="x", flows=(Flow(src=0, dst=1), Flow(src=0, dst=0)), rounds=1)

    with pytest.raises(ValueError, match="one flow for each"):
        verify(cpu, step)


@pytest.mark.parametrize(
    "flow", [Flow(src=0, dst=1), Flow(src=1, dst=1), Flow(src=HOST, dst=0), Flow(src=0, dst=1, method="staged")]
)
def test_every_way_to_copy_is_timed(cpu, flow):
    step = Step(operation="bandwidth", purpose="x", flows=(flow,), size=MIB, samples=(3, 3))
    (timing,) = execute(cpu, step).timings

    assert timing.samples == 3
    assert 0.01 < timing.gb_s < 1000


def test_latency_is_of_one_copy(cpu):
    (timing,) = execute(
        cpu, Step(operation="latency", purpose="latency", flows=(Flow(src=0, dst=1),), samples=(3, 3))
    ).timings

    assert (timing.size, timing.repeats) == (16, 100)
    assert timing.min_s > 0


class FakeCuda:
    """Streams are names, time is a number: a gate opens when the cycles it was held for have passed.

    queue_s: what queueing one copy takes. room: copies that fit the queue; one more waits until the gate opens.
    """

    def __init__(self, queue_s=0.0, room=None):
        self.now = self.opens = 0.0
        self.queue_s = queue_s
        self.room = room
        self.log = []
        self.held = []

    def event(self, stream):
        return {"stream": stream}

    def record(self, event, stream):
        event["at"] = (
            self.opens if stream == "gate" else self.opens + sum(1 for entry in self.log if entry == stream) * 1e-3
        )

    def wait(self, stream, event):
        self.log.append(("wait", stream))

    def done(self, event):
        return self.now >= self.opens

    def synchronize(self, event):
        self.now = max(self.now, event["at"])

    def seconds(self, start, end):
        assert start["stream"] == end["stream"], "events of two devices cannot be compared"
        return end["at"] - start["at"]

    def hold(self, stream, cycles):
        self.held.append(cycles / CYCLES_PER_S)
        self.opens = self.now + cycles / CYCLES_PER_S
        self.log = []

    def copy(self, stream):
        def go():
            self.now += self.queue_s
            if self.room is not None and self.log.count(stream) >= self.room:
                self.now = max(self.now, self.opens)
            self.log.append(stream)

        return go

    def timed(self, gate, counts):
        lane = Lane(first="a", last="a", copy=self.copy("a"))
        return timed(self, gate, [lane], counts, clock=lambda: self.now)


def test_all_lanes_wait_for_one_gate_and_are_timed_by_their_own_events():
    cuda = FakeCuda()
    lanes = [Lane(first=name, last=name, copy=cuda.copy(name)) for name in ("a", "b")]

    assert timed(cuda, Gate("gate"), lanes, [3, 5]) == pytest.approx((3e-3, 5e-3))
    assert [entry for entry in cuda.log if entry[0] == "wait"] == [("wait", "a"), ("wait", "b")]


def test_a_gate_that_opened_too_early_is_held_as_long_as_queueing_took_and_longer():
    cuda = FakeCuda(queue_s=LEAST_S)

    assert cuda.timed(Gate("gate"), [3]) == pytest.approx((3e-3,))
    assert cuda.held == pytest.approx([LEAST_S, 6 * LEAST_S])


def test_a_gate_remembers_from_call_to_call_how_long_queueing_takes():
    cuda, gate = FakeCuda(queue_s=LEAST_S), Gate("gate")
    for _ in range(4):
        cuda.timed(gate, [3])

    assert len(cuda.held) == 5, "a second try in the first call only"
    cuda.queue_s = 0.0
    for _ in range(2):
        cuda.timed(gate, [3])
    assert cuda.held[-1] == LEAST_S, "and it is no longer than it must be"


def test_a_host_that_is_never_fast_enough_gives_no_number():
    cuda = FakeCuda(queue_s=1e6)

    with pytest.raises(NotTimed, match="1 copy was not queued before the first one began"):
        cuda.timed(Gate("gate"), [1])
    assert len(cuda.held) == TRIES
    assert max(cuda.held) <= MOST_S


class Queued(CpuEngine):
    """Times through a fake of CUDA whose queue has room for so many copies."""

    def __init__(self, room):
        self.cuda, self.gate, self.busy, self.asked = FakeCuda(room=room), Gate("gate"), 0.0, []

    def time(self, flows, size, repeats):
        self.asked.append(tuple(repeats))
        return self.cuda.timed(self.gate, repeats)

    def latency(self, flow, repeats):
        self.asked.append((repeats,))
        return self.cuda.timed(self.gate, [repeats])[0] / repeats


@pytest.mark.parametrize("operation", ["bandwidth", "latency"])
def test_a_full_launch_queue_is_given_half_as_many_copies_until_they_fit(operation):
    """A longer gate only makes the launch that waits for room wait longer."""
    engine = Queued(room=5)
    step = Step(operation=operation, purpose="x", flows=(Flow(src=0, dst=1),), size=MIB, samples=(3, 3))
    (timing,) = execute(engine, step).timings

    assert timing.median_s == pytest.approx(1e-3)
    assert 1 <= timing.repeats <= 5
    assert all(r == (timing.repeats,) for r in engine.asked[-3:]), "what fits is not tried anew for every sample"


def test_a_queue_without_room_for_one_copy_is_no_number():
    with pytest.raises(NotTimed):
        execute(Queued(room=0), Step(operation="bandwidth", purpose="x", flows=(Flow(src=0, dst=1),), size=MIB))


def test_a_lane_over_two_devices_takes_the_hosts_clock():
    cuda = FakeCuda()
    ticks = iter([0.0, 0.0, 10.0, 10.5])
    lane = Lane(first="a", last="b", copy=cuda.copy("a"))

    assert timed(cuda, Gate("gate"), [lane], [1], clock=lambda: next(ticks)) == (0.5,)


@pytest.mark.parametrize(("name", "package"), [("torch", "torch"), ("driver", "cuda"), ("cpu", "numpy")])
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


def test_torch_without_cuda_says_so():
    answer = open_engine(engine_of("torch"), setup("torch"))

    assert isinstance(answer, Failure)
    assert (answer.kind, "finds no CUDA device" in answer.detail) == ("not-started", True)
