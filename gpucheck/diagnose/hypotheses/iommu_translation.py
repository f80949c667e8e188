"""The IOMMU translates what GPUs send to each other."""

from collections.abc import Iterator

from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.diagnose.hypotheses._links import damage_symptoms, other_way, over_pcie
from gpucheck.diagnose.instance import Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.paths import NEAR, Pair
from gpucheck.diagnose.readings import bad_pairs, hang_of

PRIOR, READ, GUEST = 0.02, 0.8, 0.04
LOOK = "cat /sys/kernel/iommu_groups/*/type shows DMA or DMA-FQ, or the kernel log IO_PAGE_FAULT or DMAR lines"
SYMPTOMS = {"hang": 0.25, "hang with P2P off": 0.03, "wrong data": 0.4}
DAMAGE = {"zeros": 0.5, "untouched": 0.2, "stale": 0.12, "other-pair": 0.08, "shifted": 0.04, "mixed": 0.05}


def instances(m: Machine) -> Iterator[Instance]:
    """Pairs over PCIe; a copy that stays below a switch meets it only where ACS sends it up."""
    pairs = tuple(p for p in over_pcie(m) if not (m.acs is False and m.classes[p] in NEAR))
    only_hangs = m.count < 2 and bool(m.translating or hang_of(m))
    if m.translating is False or not (pairs or only_hangs):
        return
    bad = tuple(sorted(bad_pairs(m) & set(over_pcie(m))))
    prior = READ if m.translating else GUEST if m.host.virtual else PRIOR
    kinds: list[tuple[tuple[Pair, ...], float, str]] = [
        (pairs, 0.6, "copies are slow, hang or arrive wrong"),
        ((), 0.4, "copies look fast"),
    ]
    # With no redirection below the switches only what leaves them meets the IOMMU; whether that is so may not be known.
    far = tuple(pair for pair in pairs if m.classes[pair] not in NEAR)
    if far and len(far) < len(pairs):
        kinds.append((far, 0.4, "copies that leave a switch are slow, hang or arrive wrong"))
    for slow, part, how in kinds:
        yield other_way(
            "iommu-translation",
            slow,
            "translated",
            symptoms=SYMPTOMS | damage_symptoms(DAMAGE),
            prior=prior * part,
            wanted="no translation",
            why=f"the IOMMU translates what the GPUs send to each other: {how}"
            + ("; inside a virtual machine only the provider can change it" if m.host.virtual else ""),
            decide=LOOK,
            pairs=bad or slow or pairs,
            direct=bool(m.translating and (bad or m.measured.hang)),
            evidence=("the IOMMU was read as translating",) if m.translating else (),
        )


HYPOTHESIS = Hypothesis(
    name="iommu-translation",
    causes=("iommu-translation",),
    title="An IOMMU that translates peer traffic",
    possible_when="the IOMMU was not read as off or identity; peers talk over PCIe; pairs below a switch only where "
    "ACS is not known to be clear",
    predicts="peer copies at 0.05 to 0.7 of the raw rate, or at full rate with zeros, lost writes, a hang; staged and "
    "host copies as usual",
    prior="2 %; 0.8 to 1 where it was read as translating; 4 % in a guest",
    never_explains="slow staged copies, NVLink pairs, single flipped bits",
    sources=("pytorch#84803", "open-gpu-kernel-modules#1257", "nccl#199", "nccl#257"),
    cases=("nccl#257",),
    instances=instances,
)
