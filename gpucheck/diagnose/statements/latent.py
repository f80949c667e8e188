"""What has not struck yet: an IOMMU that translates, or bridges that redirect, below peer traffic that looks fine."""

from collections.abc import Iterator

from gpucheck.diagnose.paths import NEAR
from gpucheck.diagnose.statements._case import Case, Claim
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict


def state(case: Case) -> Iterator[Finding]:
    """Bandwidth tests pass on such machines and collectives hang on them (nccl#257)."""
    m = case.machine
    named = {f.cause for f in case.findings}
    used = [pair for pair in m.pairs if m.access[pair] and not m.is_nvlink(pair)]
    if m.translating and used and "iommu-translation" not in named and not m.host.virtual:
        verified = m.measured.integrity_bad_pairs == ()
        yield Claim("iommu", Verdict.WARN, "iommu-translation", "possible").finding(
            seen="IOMMU translating",
            wanted="off or identity",
            why="IOMMU enabled: P2P over PCIe may hang or corrupt on bare metal even where bandwidth tests pass"
            + ("" if verified else "; no data was verified here"),
            fix="gpucheck bandwidth verifies every byte under load",
        )
    near = [pair for pair in used if m.classes[pair] in NEAR]
    if m.acs and near and "acs-redirect" not in named and not any(case.one_way(pair) for pair in near):
        yield Claim("acs", Verdict.WARN, "acs-redirect", "likely").finding(
            seen="bridges redirect peer traffic",
            wanted="redirect off on the GPUs' bridges",
            why="P2P below a switch crosses the root complex; it was not measured here",
            evidence=m.acs_bridges,
        )
