"""A CPU that is poor at peer traffic between its root ports, or between sockets: slow by design."""

from collections.abc import Iterator
from statistics import median

from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.diagnose.hypotheses._links import other_way, over_pcie
from gpucheck.diagnose.instance import Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.paths import NEAR, Pair
from gpucheck.diagnose.world import World
from gpucheck.model.finding.verdict import Verdict

BETWEEN_PORTS, BETWEEN_SOCKETS, CLEAR, HARMFUL = 0.006, 0.03, 0.03, 0.70
LOW, LOW_WHERE_CLEAR, MOST, SEVERAL = 0.8, 0.95, 0.5, 6


def instances(m: Machine) -> Iterator[Instance]:
    """Pairs between host bridges, pairs between sockets; every pair where bridges and IOMMU are known to be clear."""
    pairs = over_pcie(m)
    clear = m.acs is False and m.translating is False
    meet = tuple(pair for pair in pairs if m.classes[pair] in ("PHB", "NODE"))
    cross = tuple(pair for pair in pairs if m.classes[pair] == "SYS")
    if meet and _most_are_low(m, meet, LOW):
        yield _instance(m, meet, "expected-limit", BETWEEN_PORTS)
    if cross and _most_are_low(m, cross, LOW):
        yield _instance(m, cross, "cross-socket", BETWEEN_SOCKETS)
    below_a_switch = any(m.classes[pair] in NEAR for pair in pairs)
    if clear and below_a_switch and len(pairs) >= SEVERAL and _most_are_low(m, pairs, LOW_WHERE_CLEAR):
        yield _instance(m, pairs, "expected-limit", CLEAR)


def _instance(m: Machine, pairs: tuple[Pair, ...], cause: str, prior: float) -> Instance:
    where = "between sockets" if cause == "cross-socket" else "between GPUs"
    return other_way(
        cause,
        pairs,
        "poor",
        prior=prior,
        excludes=f"root complex {cause}",
        verdict=Verdict.WARN if _harmful(m, pairs) else Verdict.PASS,
        why=f"this platform is poor at peer traffic {where}: such pairs are slow and their links are not",
        fix="keep P2P off for this class where it is slower than host memory: NCCL_P2P_LEVEL=PXB",
        decide="host copies are fast, lspci -vv shows each link complete under load, no bridge redirects and the IOMMU "
        "does not translate",
    )


def _most_are_low(m: Machine, pairs: tuple[Pair, ...], limit: float) -> bool:
    """A platform is poor for all pairs of a kind; one slow pair among good ones is something else."""
    healthy, matrix = World(m), m.measured.p2p_uni_gb_s or m.measured.p2p_bidir_gb_s
    part = 1.0 if m.measured.p2p_uni_gb_s else 0.5
    low = [
        value * part < limit * usual
        for i, j in pairs
        if matrix and (value := matrix[i][j]) and (usual := healthy.usual((i, j))) is not None
    ]
    return not low or sum(low) > MOST * len(low)


def _harmful(m: Machine, pairs: tuple[Pair, ...]) -> bool:
    """Slower than through host memory by more than a third, or that speed is unknown.

    Below a switch nothing is poor by design, but where what arrived was right and neither bridges nor IOMMU can be it.
    """
    direct, staged = m.measured.p2p_uni_gb_s, m.measured.staged_uni_gb_s
    clear = m.acs is False and m.translating is False and m.measured.integrity_bad_pairs == ()
    if len(pairs) < SEVERAL or not direct or not staged:
        return True
    if any(m.classes[pair] in NEAR for pair in pairs) and not clear:
        return True
    ratios = [a / b for i, j in pairs if (a := direct[i][j]) and (b := staged[i][j])]
    return not ratios or median(ratios) < HARMFUL


HYPOTHESIS = Hypothesis(
    name="root-complex",
    causes=("expected-limit", "cross-socket"),
    title="A CPU that is poor at peer traffic",
    possible_when="pairs meet in a root complex (PHB, NODE) or cross sockets (SYS), and peer access is not denied",
    predicts="those pairs at 0.3 to 0.8 of the raw rate, unevenly, staged and host copies as usual",
    prior="0.6 % between root ports, 3 % between sockets, 3 % where neither bridges nor IOMMU can be it",
    never_explains="slow pairs below one switch, slow staged copies",
    sources=("NVIDIA/nccl src/graph/topo.h", "nccl#814", "rtx6kpro pcie-bandwidth", "BVLC/caffe#3319"),
    cases=("rtx6kpro pcie-bandwidth",),
    instances=instances,
)
