"""NVLink that is there and cannot be used: a fabric that is not up, or one GPU that did not register with it."""

from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Diagnosis, Rule, finding, span
from gpucheck.diagnose.machine import Machine, Pair
from gpucheck.model.verdict import Verdict

# A copy over PCIe reaches a tenth of NVSwitch's; even half of the links would reach more than this part.
NOT_NVLINK = 0.30
LOOK = "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A 2 Fabric"


def judge(case: Case) -> Iterator[Diagnosis]:
    """Pairs joined by NVLink that the driver refuses, or whose copies are as slow as PCIe."""
    m = case.machine
    joined = [pair for pair in m.pairs if m.is_nvlink(pair)]
    lost = [pair for pair in case.open(joined) if m.access(pair) is False or _too_slow_for_nvlink(case, pair)]
    unseen = [] if joined or not m.is_nvswitch or not m.seen.matrix else case.open(p for p in m.pairs if m.classes[p])
    if lost:
        yield from _unusable(case, lost, joined)
    elif unseen:
        yield _diagnosis(
            case, unseen, "host", f"no NVLink on {len(unseen)} pairs", "the board joins all GPUs by NVSwitch"
        )


def _too_slow_for_nvlink(case: Case, pair: Pair) -> bool:
    rate, goal = case.rates.p2p(pair), case.rates.nvlink_goal(pair)
    if rate is None or goal is None or case.machine.links(pair) < 2:
        return False
    return rate.gb_s < NOT_NVLINK * goal.gb_s


def _unusable(case: Case, lost: list[Pair], joined: list[Pair]) -> Iterator[Diagnosis]:
    m = case.machine
    gpus = _alone(m, lost, joined)
    seen = _seen(case, lost)
    if not gpus:
        yield _diagnosis(case, lost, "host", seen, "these GPUs are joined by NVLink, and no copy goes over it")
    for gpu in gpus:
        mine = [pair for pair in lost if gpu in pair]
        why = "all other GPUs use NVLink and this one does not: it did not register with the fabric"
        yield _diagnosis(case, mine, f"gpu:{m.label(gpu)}", seen, why)


def _alone(m: Machine, lost: list[Pair], joined: list[Pair]) -> list[int]:
    """The GPUs that lost every pair while others kept theirs; nobody where all did."""
    kept = {i for pair in set(joined) - set(lost) for i in pair}
    return [i for i in range(m.count) if kept and i not in kept and any(i in pair for pair in lost)]


def _seen(case: Case, lost: list[Pair]) -> str:
    rates = [rate.gb_s for pair in lost if (rate := case.rates.p2p(pair))]
    refused = sum(case.machine.access(pair) is False for pair in lost)
    parts = [f"peer access refused on {refused} of {len(lost)} NVLink pairs"] if refused else []
    return "; ".join(parts + ([f"{span(rates)} GB/s over NVLink pairs"] if rates else []))


def _diagnosis(case: Case, pairs: list[Pair], subject: str, seen: str, why: str) -> Diagnosis:
    m = case.machine
    goals = [goal.gb_s for pair in pairs if (goal := case.rates.nvlink_goal(pair))]
    switched = m.is_nvswitch
    return Diagnosis(
        finding(
            RULE.name,
            Verdict.FAIL,
            "fabric-manager-down" if switched else "nvlink-down",
            "likely" if switched else "possible",
            subject=subject,
            seen=seen,
            wanted=f"{span(goals)} GB/s" if goals else "copies over NVLink",
            why=f"{why}: "
            f"{'fabric manager is not running or did not finish' if switched else 'the links are not usable'}",
            fix=LOOK if switched else "nvidia-smi nvlink -s; nvidia-smi topo -p2p n",
            evidence=[f"P2P status {word}" for word in sorted({str(m.status(pair)) for pair in pairs} - {"None"})],
        ),
        frozenset(pairs),
    )


RULE = Rule(
    name="fabric",
    order=20,
    title="NVLink that cannot be used",
    looks_at="matrix (NV#), p2p_access, p2p_status, measured bandwidth of NVLink pairs, gpus.model",
    formula="an NVLink pair that is refused, or slower than 0.30 x links x payload x factor, does not use NVLink; on "
    "an NVSwitch board that is the fabric, for all GPUs or for the one that did not register",
    sources=("gpu-operator#544", "azhpc-images#506", "gpud#1085", "CUDA error 802"),
    judge=judge,
)
