"""Settings that are risky although no number shows it yet: IOMMU, ACS, and what a product will not offer."""

from collections.abc import Iterator

from gpucheck.diagnose._case import Case, Claim
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict
from gpucheck.topology.pcie.acs import redirecting


def rule(case: Case) -> Iterator[Finding]:
    """Nothing about GPUs that NVLink joins: their copies do not pass these bridges."""
    m = case.machine
    used = [pair for pair in m.granted if not m.joined(pair)]
    if m.translating and used and not m.host.virtual:
        yield Claim("iommu", Verdict.WARN, confidence="likely").finding(
            "pcie.iommu-translates",
            seen="the IOMMU translates, and P2P over PCIe is granted",
            wanted="identity, or no IOMMU",
        )
    near = [pair for pair in used if m.is_near(pair)]
    near = near or [pair for pair in m.pairs if m.over_pcie(pair) and (m.is_near(pair) or m.classes[pair] is None)]
    if m.acs and near and not any(map(m.one_way, near)):
        yield redirecting(m.acs_bridges, confidence="likely")
    fresh = bool(m.pairs) and all(m.access[pair] is None for pair in m.pairs)
    if not fresh or not m.is_geforce:
        return
    if not any(map(m.one_way, m.pairs)) and all(gpu.pcie.width for gpu in m.seen.gpus):
        yield Claim("p2p-status", Verdict.PASS).finding(
            "access.geforce-unmeasured", seen="links read, nothing measured"
        )
    if m.has_small_bar(m.pairs[0]):
        yield Claim("bar1", Verdict.PASS).finding("access.bar-small", seen="BAR1 256 MiB")
