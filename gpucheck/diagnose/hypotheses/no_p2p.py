"""Copies go through host memory because there is no peer-to-peer: what the product or platform does not offer."""

from collections.abc import Iterator

from gpucheck.diagnose._names import is_geforce_without_p2p
from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.diagnose.hypotheses._links import other_way
from gpucheck.diagnose.instance import Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.model.finding.verdict import Verdict

GEFORCE, GUEST, UNLIKE, OTHER = 8.0, 0.7, 1.0, 0.25


def instances(m: Machine) -> Iterator[Instance]:
    """Only if the driver's status is unknown: denied access needs no weighing."""
    pairs = tuple(pair for pair in m.pairs if m.access[pair] is None and not m.is_nvlink(pair))
    if not pairs:
        return
    models = {gpu.model for gpu in m.seen.gpus} - {None}
    cause, prior, verdict = None, OTHER, Verdict.PASS
    if models and all(is_geforce_without_p2p(gpu.model) for gpu in m.seen.gpus):
        cause, prior, words = "geforce-p2p-disabled", GEFORCE, "NVIDIA's driver has no P2P over PCIe for these cards"
    elif m.host.virtual:
        cause, prior, words = "vm-no-p2p", GUEST, "the virtual machine hides the PCIe path between these GPUs"
        verdict = Verdict.WARN
    elif len(models) > 1:
        cause, prior, words = "p2p-unsupported-pair", UNLIKE, "the driver offers no P2P between these models"
    else:
        words = "copies are as slow as copies through host memory"
    yield other_way(
        cause,
        pairs,
        "staged",
        prior=prior,
        verdict=verdict,
        seen=f"no P2P on {len(pairs)} of {len(m.pairs)} pairs",
        wanted="" if verdict is Verdict.PASS else "P2P",
        why=f"{words}: they are staged through host memory",
        decide="nvidia-smi topo -p2p rw shows for each pair whether the driver grants peer access",
        check="p2p-status",
    )


HYPOTHESIS = Hypothesis(
    name="no-p2p",
    causes=("geforce-p2p-disabled", "vm-no-p2p", "p2p-unsupported-pair"),
    title="No peer-to-peer",
    possible_when="it is not known whether the driver grants peer access between the pair",
    predicts="bandwidth and latency of staged copies with P2P requested, the same as with P2P off",
    prior="8 to 1 for GeForce of Turing and later, 0.7 to 1 in a guest, 1 to 1 for unlike models, else 25 %",
    never_explains="copies faster than host memory allows, latency of a few microseconds, wrong data",
    sources=("nccl#1127", "nccl#1309", "aikitoria/open-gpu-kernel-modules PR#5", "NVML P2P status codes"),
    cases=("nccl#1127", "RTX 4090 P2P write-up, stock driver"),
    instances=instances,
)
