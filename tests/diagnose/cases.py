"""Measurements of real machines with what they turned out to have: tests/data/perf/perf-*.yml, one machine a file.

A file holds `observations` (the keys of a diagnosis), `pastes` (printed output of other tools, by name; `topo` is that
of nvidia-smi topo -m), or both; `state`: healthy, limited (by design) or sick; and `expect`: `verdict`, the verdicts of
the whole that are right; `causes_any`, groups of causes of which one each must be said; `causes_never`, causes that
must not be accused.

Files perf-e-*.yml are held out: their expectation was written and committed before any judge ran on them, and no prior
or spread may be tuned on them. HELD_OUT_MISSES and TUNED_MISSES say which machines the judge gets wrong.
"""

import json
from collections.abc import Iterable
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
HELD_OUT = "e-"
# What the judge gets wrong on machines that nobody tuned on, and why. An entry goes when the judge learns.
HELD_OUT_MISSES = {
    "e-3060x3-t7910-gen3": "the port above each card is said to be Gen3, and the Gen4 cards are accused all the same",
    "e-4090x2-xeon-6530-patched-20": "20 of 25 GB/s is called normal, yet UNKNOWN: nothing rules out a false P2P grant",
    "e-4090x4-cns-nccl-2.2": "a slow all_reduce through host memory is FAIL, although the lack of P2P explains it",
    "e-a100sxmx2-pcie-p2p-blocks": "two SXM cards count as joined by NVLink; neither ACS nor the IOMMU is thought of",
    "e-a100x8-aws-fm-refuses": "error 802 is a copy that failed; that the system is not ready is not said",
    "e-gpux4-node-nccl-takes-shm": "without a model no rate is known, so SHM at distance NODE says nothing",
    "e-gpux4-node-p2p-level-sys": "without a model no rate is known, so the verdict is UNKNOWN",
    "e-h100-ollama-802": "error 802 is a copy that failed; that the system is not ready is not said",
    "e-h100x8-voltage-park-480": "all_gather at 256 MiB is held against the limit of large sizes",
    "e-l4x4-g6-12xlarge-ns": "a cloud instance without P2P is WARN, although it is the provider's design",
    "e-pro6000x4-pm40100-line-rate": "Gen5 cards behind a Gen4 switch that is said to be Gen4 are accused",
    "e-two-gpus-idle-gen1": "only an idle reading of two links: UNKNOWN instead of PASS",
    "e-v100x2-ac922-one-per-socket": "nothing was measured: UNKNOWN instead of PASS",
    "e-v100x8-dgx1-cube-mesh": "pairs with one link, two links and none in one board fit no cause that is known",
}
# The same for machines that were looked at while tuning: their expectation is not widened to fit the judge.
TUNED_MISSES = {
    "c-a30x9-iommu-off": "P2P no faster than host memory is WARN for the platform; the source calls it healthy",
}
MISSES = HELD_OUT_MISSES | TUNED_MISSES


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


@dataclass(frozen=True)
class Score:
    """Counts over the machines that can be read. wanted, said: groups of causes; right: verdict and causes."""

    machines: int
    unread: int
    wanted: int
    said: int
    accused: int
    verdicts: int
    right: int


def held_out(name: str) -> bool:
    """Whether nobody tuned on this case."""
    return name.startswith(HELD_OUT)


def score(names: Iterable[str]) -> Score:
    """How right the judge is on these cases; those that no reader understands are only counted."""
    unread = {name for name, _ in UNREAD}
    names = tuple(names)
    told = [(case(name)["expect"], answer(name)) for name in names if name not in unread]
    return Score(
        machines=len(told),
        unread=len(names) - len(told),
        wanted=sum(len(expect["causes_any"]) for expect, _ in told),
        said=sum(len(expect["causes_any"]) - len(said.missed) for expect, said in told),
        accused=sum(bool(said.accused) for _, said in told),
        verdicts=sum(said.verdict in expect["verdict"] for expect, said in told),
        right=sum(said.verdict in expect["verdict"] and not said.missed and not said.accused for expect, said in told),
    )


__all__ = [
    "HELD_OUT_MISSES",
    "MISSES",
    "NAMES",
    "STATES",
    "TUNED_MISSES",
    "UNREAD",
    "Answer",
    "ImportProblem",
    "Score",
    "answer",
    "case",
    "held_out",
    "observed",
    "score",
]
