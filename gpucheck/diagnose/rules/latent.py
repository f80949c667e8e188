"""What has not struck yet: an IOMMU that translates, or bridges that redirect, below peer traffic that looks fine."""

from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Diagnosis, Rule, finding
from gpucheck.model.verdict import Verdict


def judge(case: Case) -> Iterator[Diagnosis]:
    """Bandwidth tests pass on such machines and collectives hang on them (nccl#257)."""
    m = case.machine
    told = {found.cause for found in case.earlier}
    used = [pair for pair in m.pairs if m.access(pair) and not m.is_nvlink(pair)]
    if m.translating and used and "iommu-translation" not in told and not m.host.virtual:
        verified = m.measured.integrity_bad_pairs == ()
        yield Diagnosis(
            finding(
                RULE.name,
                Verdict.WARN,
                "iommu-translation",
                "possible",
                subject="host",
                seen="IOMMU translating",
                wanted="off or identity",
                why="IOMMU enabled: P2P over PCIe may hang or corrupt on bare metal even where bandwidth tests pass"
                + ("" if verified else "; no data was verified here"),
                fix="gpucheck bandwidth verifies every byte under load",
            )
        )
    near = [pair for pair in used if m.classes[pair] in ("PIX", "PXB")]
    if m.acs and near and "acs-redirect" not in told and not any(case.rates.p2p(pair) for pair in near):
        yield Diagnosis(
            finding(
                RULE.name,
                Verdict.WARN,
                "acs-redirect",
                "likely",
                subject="host",
                seen="bridges redirect peer traffic",
                wanted="redirect off on the GPUs' bridges",
                why="P2P below a switch goes up to the root complex and back; it was not measured here",
                evidence=m.acs_bridges,
            )
        )


RULE = Rule(
    name="latent",
    order=80,
    title="What has not struck yet",
    looks_at="host.iommu, host.acs, host.virtual, p2p_access, integrity",
    formula="a translating IOMMU on bare metal with P2P granted over PCIe; redirecting bridges above unmeasured "
    "near pairs",
    sources=("nccl#257", "NVIDIA documents: IOMMU-enabled P2P copy is not supported on bare metal"),
    cases=("nccl#257",),
    judge=judge,
)
