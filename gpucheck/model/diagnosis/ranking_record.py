"""The stored form of a ranking: equal predictions once, with the numbers that they are about.

Eight GPUs have 56 directions and each explanation a prediction of every one: as single values they would double a
report, and a fleet keeps thousands of reports.
"""

import msgspec

from gpucheck.model.diagnosis.ranking import Explanation, Judgement, Predicted, Quantity


class PredictionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One prediction of several numbers. values: (a, b, measured); the other fields and all units as in Predicted."""

    quantity: Quantity
    low: float
    middle: float
    high: float
    basis: str
    values: tuple[tuple[int, int | None, float], ...]


class ExplanationRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One explanation. Fields as in Explanation."""

    causes: tuple[tuple[str, str], ...]
    probability: float
    words: str
    predictions: tuple[PredictionRecord, ...] = ()
    readings: tuple[str, ...] = ()


class RankingRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The ranking behind the findings about links. Fields as in Judgement; the findings are in the report."""

    ranking: tuple[ExplanationRecord, ...]
    gpus: tuple[str, ...] = ()
    decided: str = ""

    def judgement(self) -> Judgement:
        """Return the Judgement without its findings and without the weight of each number."""
        return Judgement(
            findings=(), ranking=tuple(map(_explanation, self.ranking)), gpus=self.gpus, decided=self.decided
        )


def ranking_record(judgement: Judgement) -> RankingRecord | None:
    """Return what a report keeps; None if nothing was weighed."""
    if not judgement.ranking:
        return None
    return RankingRecord(ranking=tuple(map(_record, judgement.ranking)), gpus=judgement.gpus, decided=judgement.decided)


def _record(one: Explanation) -> ExplanationRecord:
    groups: dict[tuple[Quantity, float, float, float, str], list[tuple[int, int | None, float]]] = {}
    for p in one.predictions:
        groups.setdefault((p.quantity, p.low, p.middle, p.high, p.basis), []).append((p.a, p.b, p.measured))
    return ExplanationRecord(
        causes=one.causes,
        probability=one.probability,
        words=one.words,
        predictions=tuple(
            PredictionRecord(quantity=quantity, low=low, middle=middle, high=high, basis=basis, values=tuple(values))
            for (quantity, low, middle, high, basis), values in groups.items()
        ),
        readings=one.readings,
    )


def _explanation(one: ExplanationRecord) -> Explanation:
    return Explanation(
        causes=one.causes,
        probability=one.probability,
        words=one.words,
        predictions=tuple(
            Predicted(
                quantity=p.quantity, a=a, b=b, measured=measured, low=p.low, middle=p.middle, high=p.high, basis=p.basis
            )
            for p in one.predictions
            for a, b, measured in p.values
        ),
        readings=one.readings,
    )
