"""Verified data in plain memory that changes on its way, a short launch queue, and a package that is missing."""

import builtins
import os
from array import array

import pytest
from msgspec.structs import replace

from gpucheck.measure.engines.pattern import WORD, words_at
from gpucheck.measure.engines.protocol import NotTimed
from gpucheck.measure.running.child import engine, execute, open_engine
from gpucheck.measure.running.integrity import verify
from gpucheck.measure.values import HOST, Comparison, CopyStep, Failure, Flow, Region, Setup, Wrong
from gpucheck.model.device import Device

MIB = 1 << 20
SIZE = 64 << 10
DEVICES = tuple(Device(index=i, name="memory") for i in range(2))


class Memory:
    """The part of a copy engine that moves data, between two bytearrays: source and destination one after the other."""

    size = SIZE

    def __init__(self):
        self.maps = [bytearray(2 * SIZE) for _ in DEVICES]

    def at(self, region, source=False):
        start = region.offset + (0 if source else SIZE)
        return slice(start, start + region.size)

    def fill(self, device, key, region):
        self.maps[device][self.at(region, source=True)] = array("Q", words_at(key, 0, region.size // WORD)).tobytes()

    def poison(self, device, value, region):
        self.maps[device][self.at(region)] = array("Q", [value] * (region.size // WORD)).tobytes()

    def copy(self, flows, region):
        for flow in flows:
            if flow.dst != HOST:
                self.maps[flow.dst][self.at(region)] = self.maps[flow.src][self.at(region, source=True)]

    def compare(self, device, key, region):
        wanted = words_at(key, 0, region.size // WORD)
        pairs = enumerate(zip(self.words(device, region), wanted, strict=True))
        wrong = [Wrong(index=i, got=got) for i, (got, sent) in pairs if got != sent]
        first = wrong[0].index if wrong else None
        return Comparison(words=len(wanted), mismatches=len(wrong), first=first, sample=tuple(wrong[:64]))

    def words(self, device, region, *, source=False):
        return tuple(array("Q", bytes(self.maps[device][self.at(region, source)])))

    def device_seconds(self):
        return 0.0


@pytest.fixture
def memory():
    return Memory()


CHECK = CopyStep(
    operation="integrity",
    purpose="integrity",
    flows=(Flow(src=0, dst=1), Flow(src=1, dst=0), Flow(src=0, dst=HOST)),
    regions=(Region(offset=0, size=4096), Region(offset=4096, size=SIZE // 2)),
    rounds=2,
    seed=9,
    devices=2,
)


def test_data_is_checked_both_ways_at_once(memory):
    checks = verify(memory, CHECK)

    assert [(c.flow.src, c.flow.dst, c.bad_rounds) for c in checks] == [(0, 1, 0), (1, 0, 0)]
    assert all(check.bytes_verified == 2 * (4096 + SIZE // 2) for check in checks)
    assert all(check.host_bytes_verified > 0 for check in checks)


def test_one_flipped_bit_is_found_and_placed(memory, monkeypatch):
    """Broken for real: between copy and comparison a bit of the destination changes."""
    copy = memory.copy

    def copy_and_flip(flows, region):
        copy(flows, region)
        at = memory.size + region.offset + 8 * 77 + 2
        memory.maps[1][at] ^= 0x10

    monkeypatch.setattr(memory, "copy", copy_and_flip)
    there, back = verify(memory, CHECK)

    assert (there.damage, there.mismatches, there.first, there.bad_rounds) == ("bit-flip", 4, 77 * 8, 4)
    assert not there.at_source
    assert back.damage is None


def test_memory_of_the_source_that_changed_is_no_fault_of_the_copy(memory, monkeypatch):
    fill = memory.fill

    def fill_and_flip(device, key, region):
        fill(device, key, region)
        if device == 0:
            memory.maps[0][region.offset + 8 * 77 + 2] ^= 0x10

    monkeypatch.setattr(memory, "fill", fill_and_flip)
    there, back = verify(memory, replace(CHECK, rounds=1))

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
def test_a_copy_that_writes_outside_its_region_is_found(memory, monkeypatch, region, written, first):
    """The words of the region are right, so only the guards around it show it."""
    copy = memory.copy

    def copy_more(flows, part):
        copy(flows, part)
        for at in range(*written):
            memory.maps[1][memory.size + at] = 0x5A

    monkeypatch.setattr(memory, "copy", copy_more)
    check, _ = verify(memory, replace(CHECK, regions=(region,), rounds=1, guard=4096))
    unguarded, _ = verify(memory, replace(CHECK, regions=(region,), rounds=1))

    count = (written[1] - written[0]) // 8
    assert (check.mismatches, check.first, check.bad_rounds, check.at_source) == (count, first * 8, 1, False)
    assert check.evidence[-1] == f"{count} words outside the region overwritten, first {first}"
    assert (check.disagreements, unguarded.bad_rounds) == (0, 0)


def test_a_copy_that_does_not_happen_is_untouched(memory, monkeypatch):
    monkeypatch.setattr(memory, "copy", lambda flows, region: None)

    assert [check.damage for check in verify(memory, CHECK)] == ["untouched", "untouched"]


def test_a_receiver_that_calls_wrong_data_right_is_caught_by_the_host(memory, monkeypatch):
    """A GPU that cannot be trusted to copy cannot be trusted to compare."""
    compare = memory.compare
    monkeypatch.setattr(memory, "copy", lambda flows, region: None)
    monkeypatch.setattr(memory, "compare", lambda *a: compare(*a).__class__(words=a[2].size // 8, mismatches=0))
    check, _ = verify(memory, CHECK)

    assert check.disagreements > 0
    assert check.damage == "untouched"


def test_flows_that_share_a_buffer_cannot_be_checked_together(memory):
    step = CopyStep(operation="integrity", purpose="x", flows=(Flow(src=0, dst=1), Flow(src=0, dst=0)), rounds=1)

    with pytest.raises(ValueError, match="one flow for each"):
        verify(memory, step)


class Queued:
    """An engine whose launch queue has room for so many copies, of a millisecond each."""

    way = "gate"

    def __init__(self, room):
        self.room, self.asked = room, []

    def device_seconds(self):
        return 0.0

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


def test_latency_is_of_one_copy():
    step = CopyStep(operation="latency", purpose="latency", flows=(Flow(src=0, dst=1),), samples=(3, 3))
    (timing,) = execute(Queued(room=1000), step).timings

    assert (timing.size, timing.repeats) == (16, 100)
    assert timing.median_s == pytest.approx(1e-3)


def test_a_missing_package_is_named(monkeypatch):
    real = builtins.__import__

    def without(wanted, *rest):
        if wanted.partition(".")[0] == "cuda":
            raise ModuleNotFoundError("No module named 'cuda'", name="cuda")
        return real(wanted, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    answer = open_engine(engine(), Setup(devices=DEVICES, buffer_bytes=MIB, parent_pid=os.getpid()))

    assert isinstance(answer, Failure)
    assert (answer.kind, answer.detail) == ("missing-package", "cuda")
