"""From a ranking to findings: the problem, its confidence, other possible causes, and the reading that decides."""

from collections.abc import Iterable, Sequence
from math import exp, log
from statistics import median

from msgspec.structs import replace

from gpucheck.diagnose.instance import Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.numbers import numbers
from gpucheck.diagnose.paths import Pair
from gpucheck.diagnose.readings import bad_pairs, hang_of
from gpucheck.diagnose.search import Ranked
from gpucheck.diagnose.words import listed, span
from gpucheck.diagnose.world import World
from gpucheck.knowledge import causes, predictions
from gpucheck.model.finding import Alternative, Finding
from gpucheck.model.finding.verdict import Verdict

# A fault counts as found from the first on, as worth a warning from the second; below, it is not known.
FOUND, SUSPECTED, WORTH_A_WORD = 0.8, 0.5, 0.12
LIKELY, SHOWN, MOST = 0.7, 0.02, 3
FAULTS = (Verdict.FAIL, Verdict.WARN)
# What the model calls p is right less often than that: stated is 1 / (1 + exp(-(SLOPE logit p + SHIFT))), fitted to
# simulated machines of another generator (tests/diagnose/calibration.py, seeds 20000 to 23999; its page is of others).
# Direct evidence is stated as it is.
SLOPE, SHIFT, SUREST = 0.35, -0.10, 0.98
# A number that is at least this part of what a healthy machine reaches is worth a warning, never a failure.
SLIGHT = 0.85


class Findings:
    """The findings of one ranking."""

    def __init__(self, machine: Machine, ranking: Sequence[Ranked]) -> None:
        self.machine, self.ranking = machine, ranking
        self.top, self.healthy = ranking[0].world, World(machine)
        self.faulty = sum(r.probability for r in ranking if any(i.verdict in FAULTS for i in r.world.instances))

    def all(self) -> list[Finding]:
        """One for each cause of the most probable explanation, and one for a fault that cannot be ruled out."""
        merged: dict[tuple[str | None, str], list[Instance]] = {}
        for instance in self.top.instances:
            merged.setdefault((instance.cause, self._subject(instance)), []).append(instance)
        found = [self._finding(same, subject) for (_, subject), same in merged.items()]
        if not any(instance.verdict in FAULTS for instance in self.top.instances):
            found += self._not_ruled_out({key[0] for key in merged})
        return found

    def _marginal(self, cause: str | None, subject: str | None = None) -> float:
        """Probability that this cause holds, at this subject or anywhere."""
        return sum(
            ranked.probability
            for ranked in self.ranking
            if any(i.cause == cause and subject in (None, i.subject) for i in ranked.world.instances)
        )

    def _subject(self, instance: Instance) -> str:
        """The subject of the instance, unless several fit: one of two GPUs is slow, and it is unknown which."""
        if instance.cause in (None, "expected-limit") and len(instance.pairs) == 1 and self.machine.count == 2:
            return self.machine.pair_label(instance.pairs[0])
        here, anywhere = self._marginal(instance.cause, instance.subject), self._marginal(instance.cause)
        if instance.cause is None or here >= 0.6 or anywhere < here + 0.2:
            return instance.subject
        if self.machine.count == 2:
            return self.machine.pair_label((0, 1))
        return "host"

    def _finding(self, same: list[Instance], subject: str) -> Finding:
        first = same[0]
        probability = self._marginal(first.cause, subject if subject == first.subject else None)
        alternatives = self._alternatives(first)
        if first.cause is None and alternatives and alternatives[0].probability > 0.25:
            probability = self._marginal(None, first.subject)
        verdict = self._verdict(first, alternatives)
        seen, wanted = self._numbers(first)
        chances = stated([probability, *(other.probability for other in alternatives)], direct=first.direct)
        confidence = None
        if first.cause is not None:
            confidence = "certain" if first.direct else "likely" if chances[0] >= LIKELY else "possible"
        remedy = causes()[first.cause].remedy if first.cause else ""
        quiet = verdict is Verdict.PASS
        pairs = tuple(dict.fromkeys(pair for instance in same for pair in instance.pairs))
        return Finding(
            check=first.check,
            verdict=verdict,
            subject=subject,
            seen=first.seen or seen,
            wanted=first.wanted or wanted,
            cause=first.cause,
            confidence=confidence,  # type: ignore[arg-type]
            probability=chances[0] if first.cause else None,
            alternatives=_stated(alternatives, chances[1:]),
            why=first.why,
            fix=""
            if quiet
            else "; ".join(part for part in (first.fix or f"check: {first.decide}", remedy) if part and part != "none"),
            evidence=(
                *(line for instance in same for line in instance.evidence),
                *((f"pairs: {listed(pairs)}{f', {seen}' if seen else ''}",) if pairs and len(pairs) < 512 else ()),
            ),
        )

    def _verdict(self, first: Instance, alternatives: tuple[Alternative, ...]) -> Verdict:
        if first.verdict is Verdict.PASS:
            accusing = sum(a.probability for a in alternatives if a.cause not in ("narrow-by-design", "expected-limit"))
            return Verdict.UNKNOWN if accusing > 0.25 else Verdict.PASS
        if first.direct:
            return first.verdict
        if self.faulty < SUSPECTED:
            return Verdict.UNKNOWN
        if self._symptom(first):
            return first.verdict
        slight = (part := self._part(first)) is not None and part > SLIGHT
        guess = first.cause is not None and self._marginal(first.cause) < SUSPECTED
        if self.faulty < FOUND or guess or slight or first.verdict is Verdict.WARN or self._never_alone(first):
            return Verdict.WARN
        return Verdict.FAIL

    def _symptom(self, instance: Instance) -> bool:
        """Data arrived wrong or something hung, and the instance explains it."""
        m, symptoms = self.machine, instance.change.symptoms
        return bool((bad_pairs(m) and symptoms.get("wrong data")) or (hang_of(m) and symptoms.get("hang")))

    def _never_alone(self, instance: Instance) -> bool:
        """Every number behind it was taken while others copied, so it may not fail anything."""
        alone = self.machine.measured.p2p_uni_alone
        flags = [alone[i][j] for a, b in instance.pairs for i, j in ((a, b), (b, a))] if alone else []
        return bool(flags) and all(flag is False for flag in flags) and "data" not in instance.excludes

    def _part(self, instance: Instance) -> float | None:
        """Measured part of the expected bandwidth of the instance's pairs; None if unknown."""
        parts = [
            exp(n.value) / predicted.median
            for n in numbers(self.machine)
            if n.quantity == "p2p-one-way"
            and n.pair in instance.pairs
            and (predicted := self.healthy.predict(n)) is not None
        ]
        return median(parts) if parts else None

    def _numbers(self, instance: Instance) -> tuple[str | None, str | None]:
        """What was measured on the instance's pairs, and what healthy ones reach, GB/s."""
        m, symptoms = self.machine, instance.change.symptoms
        bad, hang = bad_pairs(m), hang_of(m)
        if bad and symptoms.get("wrong data"):
            return f"wrong data on {len(bad)} of {len(m.pairs)} pairs", "what was sent"
        if hang and symptoms.get("hang"):
            return f"{hang.op or 'a copy'} hangs", "completion"
        both = instance.check == "p2p-both-ways" or not m.measured.p2p_uni_gb_s
        values = _values(m.measured.p2p_bidir_gb_s if both else m.measured.p2p_uni_gb_s, instance.pairs)
        way = " both ways" if both else ""
        usual = [
            u * (2 * predictions().direct_both_ways[0] if both else 1)
            for pair in instance.pairs
            if (u := self.healthy.usual(pair))
        ]
        return (f"{span(values)} GB/s{way}" if values else None), (f"about {span(usual)} GB/s{way}" if usual else None)

    def _alternatives(self, chosen: Instance) -> tuple[Alternative, ...]:
        """Causes of the explanations that do without the chosen one."""
        kept = {(i.cause, i.subject) for i in self.top.instances}
        others = _Causes()
        for ranked in self.ranking:
            if not any(i.cause == chosen.cause for i in ranked.world.instances):
                others.add(ranked, (i for i in ranked.world.instances if (i.cause, i.subject) not in kept))
        return others.listed(SHOWN)

    def _not_ruled_out(self, known: set[str | None]) -> list[Finding]:
        """The most probable explanation has no fault, and another one that has is too likely to pass over."""
        faults = _Causes()
        for ranked in self.ranking:
            faults.add(ranked, (i for i in ranked.world.instances if i.verdict in FAULTS and i.cause not in known))
        found = faults.listed(WORTH_A_WORD / 2)
        if not found or found[0].probability < WORTH_A_WORD:
            return []
        first = faults.first[found[0].cause]
        found = _stated(found, stated([other.probability for other in found], direct=False))
        return [
            Finding(
                check=first.check,
                verdict=Verdict.UNKNOWN,
                subject=first.subject,
                seen=self._numbers(first)[0] or "nothing that rules it out",
                cause=first.cause,
                confidence="possible",
                probability=found[0].probability,
                alternatives=found[1:],
                why=f"as healthy as not: {first.why}. Nothing that was read rules it out",
                fix=f"check: {first.decide}",
            )
        ]


class _Causes:
    """How probable each cause is over several explanations. first: the instance in the most probable one of them."""

    def __init__(self) -> None:
        self.first: dict[str, Instance] = {}
        self._probability: dict[str, float] = {}

    def add(self, ranked: Ranked, instances: Iterable[Instance]) -> None:
        """Count the instances of one explanation that have a cause."""
        for instance in instances:
            if instance.cause:
                self.first.setdefault(instance.cause, instance)
                self._probability[instance.cause] = self._probability.get(instance.cause, 0.0) + ranked.probability

    def listed(self, floor: float) -> tuple[Alternative, ...]:
        """The most probable ones that reach the floor."""
        most = sorted(self._probability.items(), key=lambda item: -item[1])[:MOST]
        return tuple(
            Alternative(cause=cause, probability=round(p, 3), would_show=self.first[cause].decide)
            for cause, p in most
            if p >= floor
        )


def _stated(others: Iterable[Alternative], chances: Iterable[float]) -> tuple[Alternative, ...]:
    return tuple(replace(other, probability=chance) for other, chance in zip(others, chances, strict=True))


def stated(chances: list[float], *, direct: bool) -> list[float]:
    """Probabilities of a cause and its alternatives: calibrated, with a sum of at most one."""
    if direct:
        return [round(chance, 3) for chance in chances]
    calibrated = [_calibrated(chance) for chance in chances]
    total = max(1.0, sum(calibrated))
    return [round(chance / total, 3) for chance in calibrated]


def _calibrated(chance: float) -> float:
    inside = min(max(chance, 1 - SUREST), SUREST)
    return 1 / (1 + exp(-(SLOPE * log(inside / (1 - inside)) + SHIFT)))


def _values(matrix: Sequence[Sequence[float | None]] | None, pairs: Iterable[Pair]) -> list[float]:
    if not matrix:
        return []
    return [value for i, j in pairs for a, b in ((i, j), (j, i)) if (value := matrix[a][b])]
