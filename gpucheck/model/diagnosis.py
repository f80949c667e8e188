"""The answer to observations: the outside contract of ``gpucheck diagnose``."""

import msgspec

from gpucheck.model.finding import Finding
from gpucheck.model.ranking import Explanation, Judgement
from gpucheck.model.verdict import Verdict

SCHEMA = "gpucheck.diagnosis/1"


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``gpucheck diagnose --format json``.

    source: the files it was told from. gpus: how many. counts: findings by verdict, every verdict present.
    ranking, gpu_names, decided: as in gpucheck.model.ranking.Judgement; empty if no numbers were given.
    """

    schema: str = SCHEMA
    verdict: Verdict
    source: tuple[str, ...]
    gpus: int
    findings: tuple[Finding, ...]
    counts: dict[str, int]
    ranking: tuple[Explanation, ...] = ()
    gpu_names: tuple[str, ...] = ()
    decided: str = ""

    def judgement(self) -> Judgement:
        """Return what was judged about the links, as one value."""
        return Judgement(findings=self.findings, ranking=self.ranking, gpus=self.gpu_names, decided=self.decided)
