"""A copy or collective that never returns, and not because of the peer path."""

from collections.abc import Iterator

from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.diagnose.instance import Change, Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.readings import hang_of

WEDGED, BUG, LOST = 0.01, 0.006, 0.02
ALONE = "only one GPU does not respond, so no path between GPUs is involved"
NO_ANSWER = "the driver, a GPU or shared memory does not respond, on any path"
DEFECT = "a defect of driver or library: the links are as they should be, and the peer path hangs"


def instances(m: Machine) -> Iterator[Instance]:
    """Only where something hung."""
    hang = hang_of(m)
    if hang is None:
        return
    kinds: list[tuple[str, float, dict[str, float], str]] = [
        ("wedged-driver", WEDGED, {"hang": 0.5, "hang with P2P off": 0.9}, NO_ANSWER),
        ("driver-bug", BUG, {"hang": 0.4, "hang with P2P off": 0.1}, DEFECT),
    ]
    subject = m.pair_label((hang.gpus[0], hang.gpus[1])) if len(hang.gpus) == 2 else "host"
    if len(hang.gpus) == 1:
        kinds, subject = [("gpu-lost", LOST, {"hang": 0.9}, ALONE)], m.gpu_label(hang.gpus[0])
    for cause, prior, symptoms, words in kinds:
        yield Instance(
            cause=cause,
            subject=subject,
            prior=prior,
            change=Change(symptoms=symptoms),
            excludes="hang",
            seen=_seen(m),
            wanted="completion",
            why=words,
            decide="repeat it with P2P off (NCCL_P2P_DISABLE=1 for NCCL); dmesg | grep -e NVRM -e Xid -e SXid; "
            "df /dev/shm",
            check="p2p-copies",
        )


def _seen(m: Machine) -> str:
    stuck = next((failure for failure in m.measured.failures if failure.kind == "stuck"), None)
    if stuck is not None:
        copy = ", ".join(f"GPU {a} -> {b}" for a, b in stuck.pairs[:4]) or stuck.step
        return f"copy {copy} hung ({stuck.detail})" if stuck.detail else f"copy {copy} hung"
    hang = hang_of(m)
    return f"{(hang.op if hang else None) or 'a copy'} hangs"


HYPOTHESIS = Hypothesis(
    name="stuck",
    causes=("wedged-driver", "driver-bug", "gpu-lost"),
    title="A hang that is not the peer path's",
    possible_when="a copy or collective never returned",
    predicts="a hang that stays with P2P off (driver, GPU, shared memory), or one on good links (driver defect)",
    prior="1 % a driver that does not respond, 0.6 % a defect, 2 % a lost GPU if it hangs alone",
    never_explains="numbers of any kind: they are evaluated as if nothing hung",
    sources=("nccl#667", "xgboost#11242", "NVSentinel#1576", "NCCL user guide, GPU troubleshooting"),
    instances=instances,
)
