"""Something never returns: with peer-to-peer only, or also without."""

from collections.abc import Iterator

from gpucheck.diagnose._rule import HANG, Case, Diagnosis, Rule, finding, group_label, listed
from gpucheck.diagnose.machine import Machine, Pair
from gpucheck.diagnose.rules._suspects import Suspect, on_path
from gpucheck.model.observations import Hang
from gpucheck.model.verdict import Verdict

WITHOUT_P2P = "run it once more with P2P off (NCCL_P2P_DISABLE=1 for NCCL): when that works, it is the peer path"

WHEN = {None: "", True: ", with P2P off too", False: " with P2P only"}


def judge(case: Case) -> Iterator[Diagnosis]:
    """A hang that goes away with P2P off lies on the peer path; one that stays does not."""
    m = case.machine
    if not m.measured.hang or any(finding.check == "integrity" for finding in case.earlier):
        return
    hang = m.measured.hang if isinstance(m.measured.hang, Hang) else Hang()
    pairs = [pair for pair in m.pairs if not hang.gpus or set(pair) <= set(hang.gpus)]
    peers = [pair for pair in pairs if m.direct[pair] is not False]
    for suspect in _suspects(m, hang, peers):
        yield Diagnosis(
            finding(
                RULE.name,
                Verdict.FAIL,
                suspect.cause,
                suspect.confidence,
                subject=_subject(m, hang, pairs),
                seen=f"{hang.op or 'a copy'} hangs{WHEN[hang.with_p2p_off]}",
                wanted="it returns",
                why=suspect.words,
                fix="; ".join(filter(None, (WITHOUT_P2P if hang.with_p2p_off is None else "", suspect.fix))),
                evidence=[f"pairs among which it hangs: {listed(peers or pairs)}"] if pairs else [],
            ),
            frozenset([*pairs, HANG]),
        )


def _subject(m: Machine, hang: Hang, pairs: list[Pair]) -> str:
    return f"gpu:{m.label(hang.gpus[0])}" if len(hang.gpus) == 1 else group_label(m, pairs)


def _suspects(m: Machine, hang: Hang, peers: list[Pair]) -> list[Suspect]:
    if len(hang.gpus) == 1:
        words = "one GPU alone does not answer, so no path between GPUs is involved"
        return [Suspect("gpu-lost", "possible", words, "dmesg | grep -e NVRM -e Xid")]
    if hang.with_p2p_off:
        words = "it hangs without peer-to-peer as well: the driver, a GPU or shared memory, not the peer path"
        return [Suspect("wedged-driver", "possible", words, "dmesg | grep -e NVRM -e Xid; df /dev/shm")]
    if peers and all(m.is_nvlink(pair) for pair in peers):
        words = "these GPUs talk over NVLink, which neither ACS nor the IOMMU touches"
        return [Suspect("driver-bug", "possible", words, "dmesg | grep -e NVRM -e Xid -e SXid; nvidia-smi nvlink -e")]
    if not peers:
        words = "peer-to-peer is not in use between these GPUs"
        return [Suspect("wedged-driver", "possible", words, "dmesg | grep -e NVRM -e Xid; df /dev/shm")]
    found = on_path(m, peers)
    near = sorted({m.classes[pair] or "" for pair in peers} & {"PIX", "PXB"})
    if near and any(m.classes[pair] not in ("PIX", "PXB") for pair in m.pairs):
        note = f"; NCCL uses P2P up to PXB only, so it is the {' and '.join(near)} pairs that hang"
        found = [suspect._replace(words=suspect.words + note) for suspect in found]
    if not found:
        words = "P2P is granted, ACS and IOMMU are out of the way, and it hangs all the same: the grant is false"
        return [Suspect("false-p2p-grant", "possible", words, "update driver and BIOS; a patched driver is suspect")]
    return found


RULE = Rule(
    name="hang",
    order=12,
    title="A copy or collective that never returns",
    looks_at="measured.hang (gpus, with_p2p_off), matrix, p2p_access, host.iommu, host.acs",
    formula="gone with P2P off: ACS redirect or a translating IOMMU, told apart by the host's registers; stays with "
    "P2P off: driver, GPU or shared memory",
    sources=("nccl#199", "nccl#257", "nccl#631", "nccl#667", "NCCL user guide, GPU troubleshooting"),
    cases=("nccl#257", "nccl#667"),
    judge=judge,
)
