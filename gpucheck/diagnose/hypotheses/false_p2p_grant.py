"""The driver grants peer access that does not work: data arrives wrong, or copies are staged nevertheless."""

import re
from collections.abc import Iterator

from gpucheck.diagnose._names import is_geforce_without_p2p
from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.diagnose.hypotheses._links import PEER_WAY, damage_symptoms, one_or_host, over_pcie
from gpucheck.diagnose.instance import Change, Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.readings import bad_pairs, compared
from gpucheck.model.finding.verdict import Verdict

PRIOR, GEFORCE, ADA, GUEST = 0.012, 0.12, 0.36, 0.03
ADA_AND_LATER = re.compile(r"RTX\s*[45]0[5-9]0", re.IGNORECASE)
LOOK = "gpucheck bandwidth compares every byte that arrives; on GeForce cards, a driver that offers P2P is patched"
WRONG = "received data differs from sent data"
ERRATIC = "copies go at rates that no path has: what arrives must be compared"
NOT_USED = "copies take as long and go as fast as through host memory: access is granted and not used"
SYMPTOMS = {"hang": 0.2, "hang with P2P off": 0.03, "wrong data": 0.95}
DAMAGE = {
    "zeros": 0.25, "untouched": 0.2, "stale": 0.2, "other-pair": 0.12, "shifted": 0.1, "mixed": 0.08, "bit-flip": 0.05,
}  # fmt: skip


def instances(m: Machine) -> Iterator[Instance]:
    """All PCIe pairs with access granted, or those whose data was wrong."""
    pairs = tuple(pair for pair in over_pcie(m) if m.access[pair])
    bad = tuple(pair for pair in sorted(bad_pairs(m)) if not m.is_nvlink(pair) and m.access[pair] is not False)
    if not pairs and not bad:
        return
    stock = m.count > 0 and all(is_geforce_without_p2p(gpu.model) for gpu in m.seen.gpus)
    ada = stock and all(ADA_AND_LATER.search(gpu.model or "") for gpu in m.seen.gpus)
    prior = ADA if ada else GEFORCE if stock else GUEST if m.host.virtual else PRIOR
    symptoms, odd = SYMPTOMS | damage_symptoms(DAMAGE), bad or (() if compared(m) else pairs)
    staged = Change(ways=dict.fromkeys(pairs, "staged"), symptoms={"hang": 0.05, "wrong data": 0.05})
    for part, about, change, verdict, words in (
        (0.45, bad or pairs, Change(symptoms=symptoms), Verdict.FAIL, WRONG),
        (0.15, odd, Change(odd=frozenset(odd), symptoms=symptoms), Verdict.FAIL, ERRATIC),
        (0.4, pairs, staged, Verdict.WARN, NOT_USED),
    ):
        if change is staged and not pairs:
            continue
        yield Instance(
            cause="false-p2p-grant",
            subject=one_or_host(m, about),
            prior=prior * part,
            change=change,
            excludes=PEER_WAY,
            verdict=verdict,
            wanted="peer access that works",
            why=f"peer access is reported as available, but {words}",
            decide=LOOK,
            pairs=about,
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
    never_explains="denied access, slow host copies, NVLink pairs",
    sources=("pytorch#84803", "nccl-tests#117", "aikitoria/open-gpu-kernel-modules PR#5"),
    cases=("club-3090#922",),
    instances=instances,
)
