"""Measurements of real machines with what they turned out to have: tests/data/perf/perf-*.yml, one machine a file.

A file holds `observations` (the keys of a diagnosis), `pastes` (printed output of other tools, by name; `topo` is that
of nvidia-smi topo -m), or both; `state`: healthy, limited (by design) or sick; and `expect`: `verdict`, the verdicts of
the whole that are right; `causes_any`, groups of causes of which one each must be said; `causes_never`, causes that
must not be accused.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gpucheck import imports
from gpucheck.diagnose import judge, read, together
from gpucheck.imports import ImportProblem
from gpucheck.model import Verdict, worst
from gpucheck.model.observations import Observations
from gpucheck.model.ranking import Judgement

FOLDER = Path(__file__).parent.parent / "data" / "perf"
BAD = (Verdict.WARN, Verdict.FAIL)
STATES = ("healthy", "limited", "sick")
# Pasted output that no reader of ours understands yet.
UNREAD = (
    ("b-a100x8-p2p-level-loc", "NCCL log"),
    ("b-gb200x8-two-hosts-798", "several hosts"),
    ("b-h100x8-fm-restarted-nvls", "NCCL log"),
    ("b-h100x8-nvls-multicast-401", "traceback"),
    ("b-h200x8-fm-nvls-999", "NCCL log"),
    ("b-nvlink-pair-p2p-refused", "sentence"),
    ("b-nvswitch-fm-not-enabled", "CUDA error"),
    ("d-rtx2080tix2-waived", "waived"),
)


@cache
def case(name: str) -> dict[str, Any]:
    """One file by its name without ``perf-`` and ending. Raises OSError for a name that does not exist."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"perf-{name}.yml").read_text(encoding="utf-8"))
    return found


NAMES = tuple(sorted(path.stem.removeprefix("perf-") for path in FOLDER.glob("perf-*.yml")))


def observed(name: str) -> Observations:
    """What is known of the machine. Raises ImportProblem for a paste that no reader understands."""
    told = case(name).get("observations")
    seen = read(json.dumps(told)) if told else Observations()
    for kind, text in case(name).get("pastes", {}).items():
        content = text.encode()
        seen = together(seen, imports.read(content) if kind == "topo" else imports.read_measured(content))
    return seen


@dataclass(frozen=True)
class Answer:
    """A judgement beside what is right. missed: groups of causes of which none was said; accused: wrongly blamed."""

    judgement: Judgement
    verdict: str
    missed: tuple[tuple[str, ...], ...]
    accused: tuple[str, ...]

    def __str__(self) -> str:
        rows = [f"{f.verdict.value} {f.cause} {f.subject} {f.probability}: {f.why}" for f in self.judgement.findings]
        return "\n".join([f"verdict {self.verdict}, missed {self.missed}, accused {self.accused}", *rows])


@cache
def answer(name: str) -> Answer:
    """What the judge says of a case."""
    expect = case(name)["expect"]
    judgement = judge(observed(name))
    findings = judgement.findings
    said = {finding.cause for finding in findings} | {a.cause for finding in findings for a in finding.alternatives}
    blamed = {finding.cause for finding in findings if finding.cause and finding.verdict in BAD}
    return Answer(
        judgement=judgement,
        verdict=worst(finding.verdict for finding in findings).value,
        missed=tuple(tuple(group) for group in expect["causes_any"] if not said & set(group)),
        accused=tuple(sorted(blamed & set(expect["causes_never"]))),
    )


__all__ = ["NAMES", "STATES", "UNREAD", "Answer", "ImportProblem", "answer", "case", "observed"]
