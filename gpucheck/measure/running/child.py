"""The process that uses the devices: ``python -m gpucheck.measure.running.child FD``.

It reads JSON lines on stdin (Setup, then Steps) and writes a JSON line for each to the descriptor (Opened, Answer or
Failure). Other output is kept for the report if it exits early, and is not read as a result.

Copied data is verified with patterns that are unique by position, pair and round, on a poisoned destination; the poison
around the region shows copies that write beyond it. The receiving GPU compares the data. The host also compares blocks
at the start, the middle and the end, and around the first wrong word, as a faulty GPU may compare wrongly too. Where
data is wrong, the source is read again: its memory may have changed what was sent. The peer mapping is never used to
compare.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import BinaryIO, NamedTuple, TypeVar

from msgspec.structs import replace

from gpucheck.knowledge.xid import cuda_error_text
from gpucheck.measure.engines.pattern import WORD, Origin, index_of, poison_for, word_at, words_at
from gpucheck.measure.values import (
    LATENCY_BYTES,
    LATENCY_REPEATS,
    MAX_REPEATS,
    MISTAKES,
    WARM_UP_S,
    Answer,
    Comparison,
    CopyEngine,
    CopyStep,
    NotOpened,
    NotShared,
    NotTimed,
    Opened,
    Region,
    Setup,
    Timing,
    TimingWay,
    Wrong,
    adaptive,
    kind_of,
    repeats_together,
    spread,
)
from gpucheck.model.copies import HOST, Damage, DataCheck, Failure, FailureKind, Flow
from gpucheck.processes.exhausted import exhausted
from gpucheck.processes.lifeline import first_line, located, reply, serve, setup_of

FEW_BITS = 3  # more differing bits mean another word, not bit flips
MOST = 0.9  # minimum part of the sample with one type of corruption


class Suspects(NamedTuple):
    """The patterns that a wrong word may come from. words: length of the region.

    key: the expected pattern. stale: those of earlier rounds. others: by name, those of other pairs.
    """

    key: int
    poison: int
    words: int
    stale: tuple[int, ...] = ()
    others: tuple[tuple[str, int], ...] = ()


def classify(wrong: Sequence[Wrong], suspects: Suspects) -> tuple[Damage, str]:
    """Return the corruption type of most of the sample, and its description. Raises ValueError without a sample."""
    if not wrong:
        raise ValueError("there is no wrong word to classify")
    kinds = [_one(word, suspects) for word in wrong]
    (kind, detail), _ = Counter(kinds).most_common(1)[0]
    same = sum(k == kind for k, _ in kinds)
    if same < MOST * len(kinds):
        counts = Counter(k for k, _ in kinds)
        return "mixed", ", ".join(f"{n} of {len(kinds)} sampled words {k}" for k, n in counts.most_common())
    return kind, detail


def _one(wrong: Wrong, suspects: Suspects) -> tuple[Damage, str]:
    got, expected = wrong.got, word_at(suspects.key, wrong.index)
    if got == suspects.poison:
        return "untouched", "the destination still has its data from before the copy"
    if got == 0:
        return "zeros", "zeros arrived in place of the data"
    if (got ^ expected).bit_count() <= FEW_BITS:
        return "bit-flip", "single bits of a word differ"
    where = index_of(suspects.key, got)
    if where < suspects.words:
        return "shifted", f"the data arrived {(wrong.index - where) * WORD} bytes from its position"
    if any(index_of(key, got) < suspects.words for key in suspects.stale):
        return "stale", "the data of an earlier round arrived"
    for name, key in suspects.others:
        if index_of(key, got) < suspects.words:
            return "other-pair", f"the data of {name} arrived"
    return "mixed", "words that no buffer of this run contained"


BLOCK_WORDS = 128
EVIDENCE_WORDS = 3
# As in the plan: earlier rounds whose data a buffer may still contain.
MOST_ROUNDS, MOST_REGIONS = 3, 3


class _Round(NamedTuple):
    step: CopyStep
    number: int
    poison: int


def verify(engine: CopyEngine, step: CopyStep) -> tuple[DataCheck, ...]:
    """Copy every region in every round, all flows of the step together, and compare every word.

    Flows to the host are load: they read the sources while the others copy, and are not compared.
    Raises ValueError if two flows share a source or a destination buffer: their data could not be distinguished.
    """
    flows = tuple(flow for flow in step.flows if flow.dst != HOST)
    if len({f.src for f in flows}) < len(flows) or len({f.dst for f in flows}) < len(flows):
        raise ValueError("integrity needs one flow for each source and each destination buffer")
    checks = {flow: DataCheck(flow=flow) for flow in flows}
    for number in range(step.rounds):
        for place, region in enumerate(step.regions):
            keys = {f: Origin(step.seed, f.src, f.dst, number, place).key for f in flows}
            poison = poison_for(tuple(keys.values()), region.size // WORD)
            for flow, key in keys.items():
                engine.fill(flow.src, key, region)
                engine.poison(flow.dst, poison, _guarded(region, step.guard))
            engine.copy(step.flows, region)
            for flow, key in keys.items():
                checks[flow] = _compared(engine, checks[flow], region, key, _Round(step, number, poison))
    return tuple(checks.values())


def _suspects(flow: Flow, key: int, region: Region, at: _Round) -> Suspects:
    """Return possible origins of wrong words: earlier copies of the pair, and copies of every other pair."""
    step = at.step
    places = [(number, place) for number in range(max(step.rounds, MOST_ROUNDS)) for place in range(MOST_REGIONS)]
    mine = tuple(Origin(step.seed, flow.src, flow.dst, *place).key for place in places)
    others = tuple(
        (f"the copy from device {src} to device {dst}", Origin(step.seed, src, dst, *place).key)
        for src in range(step.devices)
        for dst in range(step.devices)
        for place in places
        if (src, dst) != (flow.src, flow.dst)
    )
    return Suspects(key, at.poison, region.size // WORD, tuple(k for k in mine if k != key), others)


def _compared(engine: CopyEngine, so_far: DataCheck, region: Region, key: int, at: _Round) -> DataCheck:
    """Return the check with one more region compared."""
    src, device = so_far.flow.src, so_far.flow.dst
    seen = engine.compare(device, key, region)
    wrong, disagree, host_bytes = list(seen.sample), 0, 0
    for first, count in _blocks(region.size // WORD, seen.first):
        arrived = engine.words(device, Region(offset=region.offset + first * WORD, size=count * WORD))
        host_bytes += count * WORD
        sent = words_at(key, first, count)
        bad = [Wrong(index=first + i, got=w) for i, w in enumerate(arrived) if w != sent[i]]
        if bad and seen.mismatches == 0:
            disagree += len(bad)
            wrong += bad
    outside = _outside(engine, device, region, at)
    check = replace(
        so_far,
        bytes_verified=so_far.bytes_verified + seen.words * WORD,
        host_bytes_verified=so_far.host_bytes_verified + host_bytes,
        rounds=so_far.rounds + 1,
        bad_rounds=so_far.bad_rounds + bool(wrong or outside),
        mismatches=so_far.mismatches + (seen.mismatches + disagree + len(outside) if wrong or outside else 0),
        disagreements=so_far.disagreements + disagree,
    )
    if check.damage is not None or not (wrong or outside):
        return check
    damage, detail = classify(wrong or outside, _suspects(check.flow, key, region, at))
    evidence = [*_evidence(seen, wrong, detail, region, key, at.number)]
    at_source = not outside and _sent_so(engine, src, region, wrong)
    if outside:
        evidence.append(f"{len(outside)} words outside the region overwritten, first {outside[0].index}")
    elif at_source:
        evidence.append("the source holds the same wrong words after the copy")
    first_wrong = min(word.index for word in (*wrong, *outside)) * WORD
    return replace(check, damage=damage, first=first_wrong, at_source=at_source, evidence=tuple(evidence))


def _guarded(region: Region, guard: int) -> Region:
    before = guard if region.offset >= guard else 0
    return Region(offset=region.offset - before, size=before + region.size + guard)


def _outside(engine: CopyEngine, device: int, region: Region, at: _Round) -> list[Wrong]:
    around, end = _guarded(region, at.step.guard), region.offset + region.size
    parts = (around.offset, region.offset - around.offset), (end, at.step.guard)
    found = []
    for start, size in parts:
        words = engine.words(device, Region(offset=start, size=size)) if size else ()
        first = (start - region.offset) // WORD
        found += [Wrong(index=first + i, got=word) for i, word in enumerate(words) if word != at.poison]
    return found


def _sent_so(engine: CopyEngine, device: int, region: Region, wrong: list[Wrong]) -> bool:
    """Return whether the source holds what arrived wrong, in each word of the sample."""
    offsets = [region.offset + word.index * WORD for word in wrong]
    held = [engine.words(device, Region(offset=offset, size=WORD), source=True)[0] for offset in offsets]
    return held == [word.got for word in wrong]


def _blocks(words: int, wrong: int | None) -> list[tuple[int, int]]:
    count = min(BLOCK_WORDS, words)
    starts = {0, (words - count) // 2, words - count}
    if wrong is not None:
        starts.add(min(wrong, words - count))
    return [(start, count) for start in sorted(starts)]


def _evidence(
    seen: Comparison, wrong: list[Wrong], detail: str, region: Region, key: int, number: int
) -> Iterator[str]:
    yield f"round {number + 1}, {region.size} bytes at offset {region.offset}: {detail}"
    counted = f"{seen.mismatches} of {seen.words} words wrong, counted by the receiving device"
    yield f"{counted}, first {seen.first}, last {seen.last}"
    for word in wrong[:EVIDENCE_WORDS]:
        yield f"word {word.index}: got {word.got:016x}, sent {word_at(key, word.index):016x}"


Shape = TypeVar("Shape")


def execute(engine: CopyEngine, step: CopyStep) -> Answer:
    """Run a step. Raises NotTimed, ValueError for an invalid step."""
    before = engine.device_seconds()
    if step.operation == "integrity":
        checks = verify(engine, step)
        return Answer(checks=checks, device_s=engine.device_seconds() - before)
    timings = _latency(engine, step) if step.operation == "latency" else _bandwidth(engine, step)
    return Answer(timings=timings, device_s=engine.device_seconds() - before)


def _bandwidth(engine: CopyEngine, step: CopyStep) -> tuple[Timing, ...]:
    """Time all flows simultaneously, each repeated until its sample is long enough."""
    row = _Row(engine, step.flows, step.size)
    row.repeats = repeats_together(row.sample())
    warm = 0.0
    while warm < WARM_UP_S:
        each = row.sample()
        warm += max(s * r for s, r in zip(each, row.repeats, strict=True))
        # The first copy of a run maps the peer's memory, so its time does not apply to later ones.
        row.repeats = tuple(min(row.most, r) for r in repeats_together(each))
    columns = adaptive(row.sample, *step.samples)
    rows = zip(step.flows, row.repeats, columns, strict=True)
    return tuple(_timing(f, step.size, r, c, engine.way) for f, r, c in rows)


def _latency(engine: CopyEngine, step: CopyStep) -> tuple[Timing, ...]:
    timings = []
    for flow in step.flows:
        row = _Row(engine, (flow,), LATENCY_BYTES, LATENCY_REPEATS)
        row.latency()
        columns = adaptive(row.latency, *step.samples)
        timings.append(_timing(flow, LATENCY_BYTES, row.repeats[0], columns[0], engine.way))
    return tuple(timings)


class _Row:
    """Consecutive copies: how many of each flow, and the maximum that the host can queue in time."""

    def __init__(self, engine: CopyEngine, flows: Sequence[Flow], size: int, repeats: int = 1) -> None:
        self.engine, self.flows, self.size = engine, flows, size
        self.repeats = (repeats,) * len(flows)
        self.most = MAX_REPEATS

    def sample(self) -> tuple[float, ...]:
        """Return seconds of one copy of each flow. Raises NotTimed if not even one copy each is queued in time."""
        seconds = self._queued(lambda repeats: self.engine.time(self.flows, self.size, repeats))
        return tuple(s / r for s, r in zip(seconds, self.repeats, strict=True))

    def latency(self) -> tuple[float]:
        """Return seconds of one small copy of the only flow. Raises NotTimed as ``sample`` does."""
        return (self._queued(lambda repeats: self.engine.latency(self.flows[0], repeats[0])),)

    def _queued(self, measure: Callable[[tuple[int, ...]], Shape]) -> Shape:
        """Halve the number of copies after each NotTimed: a full queue or a slow host accepts fewer."""
        try:
            return measure(self.repeats)
        except NotTimed:
            if max(self.repeats) == 1:
                raise
            self.repeats = tuple(max(1, r // 2) for r in self.repeats)
            self.most = max(self.repeats)
        return self._queued(measure)


def _timing(flow: Flow, size: int, repeats: int, samples: tuple[float, ...], way: TimingWay) -> Timing:
    s = spread(samples)
    return Timing(
        flow=flow,
        size=size,
        repeats=repeats,
        samples=s.samples,
        median_s=s.median,
        mad_s=s.mad,
        min_s=s.least,
        max_s=s.greatest,
        way=way,
    )


def engine_of(name: str) -> CopyEngine:
    """Return the copy engine of this name; its packages are imported when it opens."""
    if name == "cpu":
        from gpucheck.measure.engines.cpu import CpuEngine

        return CpuEngine()
    from gpucheck.measure.engines.driver.engine import DriverEngine

    return DriverEngine()


def open_engine(engine: CopyEngine, setup: Setup) -> Opened | Failure:
    try:
        return engine.open(setup)
    except ModuleNotFoundError as error:
        return Failure(kind="missing-package", purpose="open", detail=str(error.name))
    except NotOpened as error:
        reason, values = error.finding.code, error.finding.values
        return Failure(kind="not-started", purpose="open", detail=str(error), reason=reason, values=values)
    except MISTAKES as error:
        return Failure(kind="defect", purpose="open", detail=located(error))
    except Exception as error:
        kind: FailureKind = "no-resources" if exhausted(error) else "not-started"
        return Failure(kind=kind, purpose="open", detail=first_line(error))


def answer(engine: CopyEngine, step: CopyStep) -> Answer | Failure:
    """Run one step, or return why that failed. Only an error that CUDA returned concerns the copy."""
    try:
        return execute(engine, step)
    except NotTimed as error:
        return Failure(kind="not-timed", purpose=step.purpose, flows=step.flows, detail=str(error))
    except NotShared as error:
        return Failure(kind="not-shared", purpose=step.purpose, flows=step.flows, detail=str(error), code=error.code)
    except Exception as error:
        code = engine.error_code(error)
        if code is not None:
            message, known = str(error), cuda_error_text(code)
            detail = message.splitlines()[0] if message.startswith(known) else f"{known}: {first_line(error)}"
            return Failure(kind=kind_of(code), purpose=step.purpose, flows=step.flows, detail=detail, code=code)
        if isinstance(error, MemoryError):  # CuPy's OutOfMemoryError is one too
            return Failure(kind="no-memory", purpose=step.purpose, flows=step.flows, detail=first_line(error))
        kind: FailureKind = "no-resources" if exhausted(error) else "defect"
        return Failure(kind=kind, purpose=step.purpose, flows=step.flows, detail=located(error))


def main(descriptor: int, requests: BinaryIO) -> None:
    """Run requests until stdin closes."""
    setup = setup_of(requests, Setup)
    engine = engine_of(setup.engine)
    opened = open_engine(engine, setup)
    reply(descriptor, opened)
    if isinstance(opened, Opened):
        try:
            serve(descriptor, requests, CopyStep, partial(answer, engine))
        finally:
            engine.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.stdin.buffer)
