"""The answer to observations: the outside contract of ``gpucheck diagnose``."""

import msgspec

from gpucheck.model.finding import Finding
from gpucheck.model.verdict import Verdict

SCHEMA = "gpucheck.diagnosis/1"


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``gpucheck diagnose --format json``.

    source: the files it was told from. gpus: how many. counts: findings by verdict, every verdict present.
    """

    schema: str = SCHEMA
    verdict: Verdict
    source: tuple[str, ...]
    gpus: int
    findings: tuple[Finding, ...]
    counts: dict[str, int]
