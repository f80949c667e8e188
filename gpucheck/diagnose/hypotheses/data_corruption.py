"""A link, switch or memory that changes data."""

from collections.abc import Iterator

from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.diagnose.instance import Change, Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.readings import bad_pairs, damages
from gpucheck.diagnose.words import group_label

PRIOR = 0.01
DAMAGE = {"bit-flip": 0.8, "mixed": 0.1, "stale": 0.03, "zeros": 0.02, "shifted": 0.02, "other-pair": 0.02}


def instances(m: Machine) -> Iterator[Instance]:
    """Only what was compared can be known to be wrong."""
    bad = tuple(sorted(bad_pairs(m)))
    wrong = sum(row.wrong or 0 for row in m.measured.collectives)
    if not bad and not wrong:
        return
    joined = bool(bad) and all(m.is_nvlink(pair) for pair in bad)
    flips = damages(m) == ["bit-flip"]
    yield Instance(
        cause="data-corruption",
        subject=group_label(m, bad),
        prior=PRIOR,
        change=Change(symptoms={"wrong data": 0.9, **{f"damage {kind}": chance for kind, chance in DAMAGE.items()}}),
        excludes="data",
        seen=f"wrong data on {len(bad)} of {len(m.pairs)} pairs" if bad else f"{wrong} wrong elements",
        wanted="what was sent",
        why="the path works but changes bits: riser, slot, cable, retimer or memory"
        if flips or not bad
        else "data that arrived differs from data that was sent: a link, switch, memory or GPU changes it"
        + (", and NVLink needs neither IOMMU nor ACS" if joined else ""),
        decide="gpucheck bandwidth names the damage; nvidia-smi nvlink -e and the kernel log (Xid, AER) count errors",
        pairs=bad,
        direct=flips or joined,
        check="p2p-integrity",
    )


HYPOTHESIS = Hypothesis(
    name="data-corruption",
    causes=("data-corruption",),
    title="Changed data",
    possible_when="bytes were compared and some were wrong",
    predicts="single flipped bits on the pairs of one link, switch or GPU; bandwidth as usual",
    prior="1 %",
    never_explains="slow copies, lost writes on every PCIe pair",
    sources=("nccl-tests#172", "club-3090#922"),
    instances=instances,
)
