"""Verify copied data with patterns that are unique by position, pair and round, on a poisoned destination.

The poison around the region shows copies that write beyond it.

The receiving GPU compares the data. The host also compares blocks at the start, the middle and the end, and around the
first wrong word, as a faulty GPU may compare wrongly too. Where data is wrong, the source is read again: its memory may
have changed what was sent. The peer mapping is never used to compare.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.measure.engines.pattern import WORD, Origin, index_of, poison_for, word_at, words_at
from gpucheck.measure.values import HOST, Comparison, CopyEngine, CopyStep, Damage, DataCheck, Flow, Region, Wrong

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


class _Tally:
    damage: Damage | None

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.bytes = self.host_bytes = self.rounds = self.bad_rounds = self.mismatches = self.disagreements = 0
        self.first: int | None = None
        self.damage = None
        self.at_source = False
        self.evidence: list[str] = []

    def check(self) -> DataCheck:
        return DataCheck(
            flow=self.flow,
            bytes_verified=self.bytes,
            host_bytes_verified=self.host_bytes,
            rounds=self.rounds,
            bad_rounds=self.bad_rounds,
            mismatches=self.mismatches,
            disagreements=self.disagreements,
            first=self.first,
            damage=self.damage,
            at_source=self.at_source,
            evidence=tuple(self.evidence),
        )


def verify(engine: CopyEngine, step: CopyStep) -> tuple[DataCheck, ...]:
    """Copy every region in every round, all flows of the step together, and compare every word.

    Flows to the host are load: they read the sources while the others copy, and are not compared.
    Raises ValueError if two flows share a source or a destination buffer: their data could not be distinguished.
    """
    flows = tuple(flow for flow in step.flows if flow.dst != HOST)
    if len({f.src for f in flows}) < len(flows) or len({f.dst for f in flows}) < len(flows):
        raise ValueError("integrity needs one flow for each source and each destination buffer")
    tallies = [_Tally(flow) for flow in flows]
    for number in range(step.rounds):
        for place, region in enumerate(step.regions):
            keys = {f: Origin(step.seed, f.src, f.dst, number, place).key for f in flows}
            poison = poison_for(tuple(keys.values()), region.size // WORD)
            for flow, key in keys.items():
                engine.fill(flow.src, key, region)
                engine.poison(flow.dst, poison, _guarded(region, step.guard))
            engine.copy(step.flows, region)
            for tally in tallies:
                _compare(engine, tally, region, keys[tally.flow], _Round(step, number, poison))
    return tuple(tally.check() for tally in tallies)


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


def _compare(engine: CopyEngine, tally: _Tally, region: Region, key: int, at: _Round) -> None:
    device = tally.flow.dst
    seen = engine.compare(device, key, region)
    tally.rounds += 1
    tally.bytes += seen.words * WORD
    wrong = list(seen.sample)
    disagree = 0
    for first, count in _blocks(region.size // WORD, seen.first):
        arrived = engine.words(device, Region(offset=region.offset + first * WORD, size=count * WORD))
        tally.host_bytes += count * WORD
        sent = words_at(key, first, count)
        bad = [Wrong(index=first + i, got=w) for i, w in enumerate(arrived) if w != sent[i]]
        if bad and seen.mismatches == 0:
            disagree += len(bad)
            wrong += bad
    tally.disagreements += disagree
    outside = _outside(engine, device, region, at)
    if not wrong and not outside:
        return
    tally.mismatches += seen.mismatches + disagree + len(outside)
    tally.bad_rounds += 1
    if tally.damage is None:
        suspects = _suspects(tally.flow, key, region, at)
        tally.damage, detail = classify(wrong or outside, suspects)
        tally.first = min(w.index for w in (*wrong, *outside)) * WORD
        tally.evidence += list(_evidence(seen, wrong, detail, region, key, at.number))
        if outside:
            tally.evidence.append(f"{len(outside)} words outside the region overwritten, first {outside[0].index}")
        elif _sent_so(engine, tally.flow.src, region, wrong):
            tally.at_source = True
            tally.evidence.append("the source holds the same wrong words after the copy")


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
