"""Measurements of real machines with what they turned out to have: tests/data/perf/perf-*.yml, one machine a file.

A file holds `observations` (the keys of a diagnosis), `pastes` (printed output of other tools, by name; `topo` is that
of nvidia-smi topo -m), or both; `state`: healthy, limited (by design) or sick; and `expect`: `verdict`, the verdicts of
the whole that are right; `causes_any`, groups of causes of which one each must be said; `causes_never`, causes that
must not be accused.

Files perf-e-*.yml are held out: their expectation was written and committed before any judge ran on them, and no prior
or spread may be tuned on them. Those in LEARNED were, later, and count as tuned since. HELD_OUT_MISSES and TUNED_MISSES
say which machines the judge gets wrong.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpucheck import imports
from gpucheck.diagnose.document import read
from gpucheck.model import Finding
from gpucheck.model.diagnosis import Diagnosis
from gpucheck.model.diagnosis.observations import Observations
from gpucheck.model.paste import Reading
from gpucheck.run.pastes import diagnosis
from tests.diagnose.results import BAD, named
from tests.shared import from_yaml

FOLDER = Path(__file__).parent.parent / "data" / "perf"
STATES = ("healthy", "limited", "sick")
# Pasted output that no reader of ours understands yet.
UNREAD: tuple[tuple[str, str], ...] = (
    ("f-cuda-205-4090x2-ice-lake-switch", "one line of p2pBandwidthLatencyTest's own error text"),
    ("f-h100-a100-two-hosts-10gbe", "a run that has no row with a bus bandwidth"),
    ("f-nccl-tests-248-values-wrong", "the first and the last lines of a run, without a row"),
)
HELD_OUT = ("e-", "f-")
# Held-out machines that the judge was changed for after it had got them wrong; each says so in its note. They count as
# tuned from then on. What was right at first sight is on docs/diagnose-figures.md.
LEARNED = {
    "e-3060x3-t7910-gen3",
    "e-4090x4-cns-nccl-2.2",
    "e-a100sxmx2-pcie-p2p-blocks",
    "e-a100x8-aws-fm-refuses",
    "e-h100-ollama-802",
    "e-h100x8-voltage-park-480",
    "e-l4x4-g6-12xlarge-ns",
    "e-pro6000x4-pm40100-line-rate",
    "e-v100x8-dgx1-cube-mesh",
    "f-klog-open-515-geforce-refused",
}
# What the judge gets wrong on machines that nobody tuned on, and why. An entry goes when the judge learns. They
# remain UNKNOWN where the source says PASS; nothing in their observations shows that, so UNKNOWN stays.
NOT_COMPARED = "UNKNOWN is right: P2P that the stock driver never grants, and no data was compared"
HELD_OUT_MISSES = {
    "e-4090x2-xeon-6530-patched-20": NOT_COMPARED,
    "e-gpux4-node-nccl-takes-shm": "UNKNOWN is right: no model, so no rate; nor is peer access said to be granted, "
    "without which SHM at distance NODE is no choice of NCCL's",
    "e-gpux4-node-p2p-level-sys": "UNKNOWN is right: no model, so no rate to compare the collective with",
    "f-gtx780ti-host-11.6": "UNKNOWN is right: no link rate of this card is known",
    "e-k80x8-four-boards": "UNKNOWN is right: 78 to 82 % of expected, healthy across sockets and low on one, and the "
    "path is not known",
    "e-two-gpus-idle-gen1": "UNKNOWN is right: an idle reading of two links says nothing about them under load",
    "e-v100x2-ac922-one-per-socket": "UNKNOWN is right: nothing was measured, no link was read",
}
# The same for machines that were looked at while tuning: their expectation is not widened to fit the judge.
TUNED_MISSES: dict[str, str] = {
    "3090x8-no-p2p-shared-uplink": "UNKNOWN is right: copies through host memory at a third of what is usual",
    "a-3090x3-p620-patched": NOT_COMPARED,
    "a-3090x8-switchtec-patched": NOT_COMPARED,
    "b-b300x7-xe9780-774": "UNKNOWN is right: host copies as on PCIe Gen5, and the board may have Gen6",
    "e-4090x4-cns-nccl-2.2": "UNKNOWN is right: 2.2 GB/s through host memory is a third of the least on other hosts",
    "c-titan-rtx-x8-no-p2p": "UNKNOWN is right: no P2P, and neither a status nor whether it is a guest is known",
    "c-cmp170hx-x2-after": "UNKNOWN is right: no link rate of this card is known",
    "a-3090x4-puget-stock": "UNKNOWN is right: copies through host memory at a third of what is usual, and nothing "
    "that was read explains it",
    "a-pro6000x2-trx40-gen4-board": "UNKNOWN is right: the board gives one generation less than the cards can, and "
    "nothing in the observations shows that",
    "c-a30x9-iommu-off": "UNKNOWN is right: pairs below one switch at 77 % of expected, and every reading that could "
    "explain it is clear",
}
MISSES = HELD_OUT_MISSES | TUNED_MISSES


@cache
def case(name: str) -> dict[str, Any]:
    """One file by its name without ``perf-`` and ending. Raises OSError for a name that does not exist."""
    found: dict[str, Any] = from_yaml(FOLDER / f"perf-{name}.yml")
    return found


NAMES = tuple(sorted(path.stem.removeprefix("perf-") for path in FOLDER.glob("perf-*.yml")))
# Those that need no reader, and the seventeen that were first.
PLAIN = tuple(name for name in NAMES if "observations" in case(name) and "pastes" not in case(name))
OLDEST = tuple(name for name in PLAIN if name[1] != "-")


def healthy(name: str) -> bool:
    """Whether its owner calls it healthy, and nothing but PASS is right."""
    return bool(case(name)["state"] == "healthy" and case(name)["expect"]["verdict"] == ["pass"])


def readings(name: str) -> list[Reading]:
    """Every paste of the case, read. Raises ImportProblem for one that no reader understands."""
    return [imports.read_all(text.encode(), kind) for kind, text in case(name).get("pastes", {}).items()]


def told(name: str) -> Observations:
    """What the case says besides its pastes."""
    words = case(name).get("observations")
    return read(json.dumps(words)) if words else Observations()


@cache
def diagnosed(name: str) -> Diagnosis:
    """The answer of gpucheck diagnose. Raises ImportProblem for a paste that no reader understands."""
    return diagnosis(readings(name), told(name), sources=(name,))


@dataclass(frozen=True)
class Answer:
    """Findings next to what is right. missed: groups of causes of which none was said; accused: wrongly blamed."""

    findings: tuple[Finding, ...]
    verdict: str
    missed: tuple[tuple[str, ...], ...]
    accused: tuple[str, ...]

    def __str__(self) -> str:
        rows = [f"{f.verdict.value} {f.cause} {f.subject} {f.why}" for f in self.findings]
        return "\n".join([f"verdict {self.verdict}, missed {self.missed}, accused {self.accused}", *rows])


@cache
def answer(name: str) -> Answer:
    """What the judge says of a case."""
    expect = case(name)["expect"]
    found = diagnosed(name)
    findings = found.findings
    stated = named(findings)
    wrong = {finding.cause for finding in findings if finding.cause and finding.verdict in BAD}
    return Answer(
        findings=findings,
        verdict=found.verdict.value,
        missed=tuple(tuple(group) for group in expect["causes_any"] if not stated & set(group)),
        accused=tuple(sorted(wrong & set(expect["causes_never"]))),
    )


def held_out(name: str) -> bool:
    """Whether nobody tuned on this case, and the judge did not learn from it later."""
    return name.startswith(HELD_OUT) and name not in LEARNED
