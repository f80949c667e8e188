"""NVLink that is there and not in use: the fabric of an NVSwitch board is not up, or one GPU is not part of it."""

from collections.abc import Iterator

from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.diagnose.hypotheses._links import other_way
from gpucheck.diagnose.instance import Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.paths import Pair

ALL, ONE, REFUSED = 0.03, 0.004, 20.0
LOOK = "systemctl status nvidia-fabricmanager, and nvidia-smi -q | grep -A 2 Fabric shows whether it completed"


def instances(m: Machine) -> Iterator[Instance]:
    """All NVLink pairs staged, or those of one GPU."""
    joined = tuple(pair for pair in m.pairs if m.is_nvlink(pair) or (m.is_nvswitch and m.seen.matrix))
    if not joined:
        return
    refused = {pair for pair in joined if m.access[pair] is False or not m.is_nvlink(pair)}
    yield _instance(m, joined, None, REFUSED if len(refused) == len(joined) else ALL)
    every, slow = set(joined), _slow(m)
    for i in range(m.count) if m.count > 2 else ():
        mine = tuple(pair for pair in m.pairs_with(i) if pair in every)
        lost = bool(mine) and refused == set(mine)
        if mine and len(mine) < len(joined) and (lost or i in slow):
            yield _instance(m, mine, i, REFUSED if lost else ONE)


def _slow(m: Machine) -> set[int]:
    """GPUs whose best number is below half of the best between two others."""
    matrix = m.measured.p2p_uni_gb_s or m.measured.p2p_bidir_gb_s or ()
    ordered = sorted(
        ((value, a, b) for a, row in enumerate(matrix) for b, value in enumerate(row) if value), reverse=True
    )
    best = {i: max((value or 0.0 for value in row), default=0.0) for i, row in enumerate(matrix)}
    others = {i: next((value for value, a, b in ordered if i not in (a, b)), 0.0) for i in best}
    return {i for i in best if best[i] < 0.5 * others[i]}


def _instance(m: Machine, pairs: tuple[Pair, ...], i: int | None, prior: float) -> Instance:
    who = "these GPUs are connected by NVLink, and no copy uses it"
    if i is not None:
        who = "all other GPUs use NVLink and this one does not: it did not register with the fabric"
    words = "fabric manager is not running or did not finish" if m.is_nvswitch else "the links are not usable"
    return other_way(
        "fabric-manager-down" if m.is_nvswitch else "nvlink-down",
        pairs,
        "staged",
        symptoms={"hang": 0.05},
        subject="host" if i is None else m.gpu_label(i),
        prior=prior,
        excludes=f"NVLink {'all' if i is None else i}",
        wanted="copies over NVLink",
        why=f"{who}: {words}",
        decide=LOOK if m.is_nvswitch else "nvidia-smi nvlink -s; nvidia-smi topo -p2p n",
        evidence=tuple(f"P2P status {word}" for word in sorted({m.status(pair) or "" for pair in pairs} - {""})),
        direct=prior == REFUSED and any(m.access[pair] is False for pair in pairs),
    )


HYPOTHESIS = Hypothesis(
    name="fabric-manager-down",
    causes=("fabric-manager-down", "nvlink-down"),
    title="NVLink that cannot be used",
    possible_when="the matrix shows NVLink, or the board is one with NVSwitch",
    predicts="copies of these pairs at the rate and latency of staged ones; the driver denies peer access",
    prior="3 % the entire board, 0.4 % one GPU; 20 to 1 if the driver denies exactly these pairs",
    never_explains="one or two missing links, slow host copies, PCIe pairs",
    sources=("gpu-operator#544", "azhpc-images#506", "gpud#1085", "CUDA error 802"),
    instances=instances,
)
