"""The driver grants peer access that does not work: data arrives wrong, or copies are staged all the same."""

import re
from collections.abc import Iterator

from gpucheck.diagnose._names import is_geforce_without_p2p
from gpucheck.diagnose.hypotheses._hypothesis import Hypothesis
from gpucheck.diagnose.hypotheses._links import over_pcie
from gpucheck.diagnose.machine import Machine, Pair
from gpucheck.diagnose.readings import bad_pairs, compared
from gpucheck.diagnose.world import Change, Instance
from gpucheck.model.verdict import Verdict

PRIOR, GEFORCE, ADA, GUEST = 0.012, 0.12, 0.36, 0.03
ADA_AND_LATER = re.compile(r"RTX\s*[45]0[5-9]0", re.IGNORECASE)
LOOK = "gpucheck bandwidth compares every byte that arrives; a driver with P2P for these cards is a patched one"
DAMAGE = {
    "zeros": 0.25, "untouched": 0.2, "stale": 0.2, "other-pair": 0.12, "shifted": 0.1, "mixed": 0.08, "bit-flip": 0.05,
}  # fmt: skip


def instances(m: Machine) -> Iterator[Instance]:
    """All PCIe pairs with access granted, or those whose data was wrong."""
    pairs = tuple(pair for pair in over_pcie(m) if m.access(pair))
    bad = tuple(sorted(bad_pairs(m)))
    bad = tuple(pair for pair in bad if not m.is_nvlink(pair) and m.access(pair) is not False)
    if not pairs and not bad:
        return
    stock = all(is_geforce_without_p2p(gpu.model) for gpu in m.seen.gpus) and m.count > 0
    ada = stock and all(ADA_AND_LATER.search(gpu.model or "") for gpu in m.seen.gpus)
    prior = ADA if ada else GEFORCE if stock else GUEST if m.host.virtual else PRIOR
    says = {"hang": 0.2, "hang with P2P off": 0.03, "wrong data": 0.95}
    says |= {f"damage {kind}": chance for kind, chance in DAMAGE.items()}
    about = bad or pairs
    yield _instance(m, about, prior * 0.45, Change(says=says), "what arrives is not what was sent")
    if compared(m) and not bad:
        about = ()
    erratic = Change(odd=frozenset(about), says=says)
    yield _instance(
        m, about, prior * 0.15, erratic, "copies go at rates that no path has: what arrives must be compared"
    )
    if pairs:
        staged = Change(ways=dict.fromkeys(pairs, "staged"), says={"hang": 0.05, "wrong data": 0.05})
        words = "copies take as long and go as fast as through host memory: access is granted and not used"
        yield _instance(m, pairs, prior * 0.4, staged, words, Verdict.WARN)


def _instance(
    m: Machine, pairs: tuple[Pair, ...], prior: float, change: Change, words: str, verdict: Verdict = Verdict.FAIL
) -> Instance:
    return Instance(
        cause="false-p2p-grant",
        subject="host" if len(pairs) != 1 else m.pair_label(pairs[0]),
        prior=prior,
        change=change,
        excludes="the way of peer copies",
        verdict=verdict,
        seen="",
        wanted="peer access that works",
        why=f"the driver's OK is a claim, not a proof: peer access is granted, and {words}",
        decide=LOOK,
        pairs=pairs,
        check="p2p-integrity" if bad_pairs(m) else "p2p-bandwidth",
    )


HYPOTHESIS = Hypothesis(
    name="false-p2p-grant",
    causes=("false-p2p-grant",),
    title="Peer access that is granted and does not work",
    possible_when="the driver grants peer access over PCIe; the stock one never does between GeForce cards of Turing "
    "and later, so there it is a patched driver or a false grant until data was verified",
    predicts="wrong data (zeros, lost writes, another pair's data), or bandwidth and latency of staged copies",
    prior="1.2 %; 12 % for GeForce without official P2P, 36 % from Ada on; 3 % in a guest",
    never_explains="refused access, slow host copies, NVLink pairs",
    sources=("pytorch#84803", "nccl-tests#117", "aikitoria/open-gpu-kernel-modules PR#5"),
    cases=("club-3090#922",),
    instances=instances,
)
