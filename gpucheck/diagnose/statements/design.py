"""Fewer lanes or links than the part has, by design."""

from collections.abc import Iterator

from gpucheck.diagnose.hypotheses.nvlink_count import wanted_links
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.statements._case import Case, Claim
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict


def state(case: Case) -> Iterator[Finding]:
    """PCIe lanes, then NVLinks."""
    m = case.machine
    narrow = [i for i in range(m.count) if m.is_narrow_by_design(i)]
    if narrow:
        pcie = m.gpu(narrow[0]).pcie
        yield Claim("pcie-lanes", Verdict.PASS, "narrow-by-design", "likely" if m.host.virtual else "possible").finding(
            subject="host" if len(narrow) > 1 else m.gpu_label(narrow[0]),
            seen=f"x{pcie.width}",
            wanted=f"x{pcie.max_width}",
            why=_why(m, narrow),
        )
    for i in range(m.count):
        counted, wanted = m.gpu(i).nvlinks, wanted_links(m, i)
        if counted.active and counted.total and wanted and wanted <= counted.active < counted.total:
            yield Claim("nvlink-links", Verdict.PASS, "narrow-by-design", "certain").finding(
                seen=counted.active,
                wanted=wanted,
                unit="links",
                why=f"{m.gpu(i).model} has {counted.total} ports, of which it uses {counted.active} by design",
            )
            return
    bare = [
        i
        for i in range(m.count)
        if m.gpu(i).nvlinks.active == 0 and (n := m.models[i]) and n.nvlink and n.nvlink.bridge
    ]
    if bare and "nvlink-missing" not in case.causes:
        words = "no NVLink bridge is installed, so the NVLinks are not used"
        subject = "host" if len(bare) > 1 else m.gpu_label(bare[0])
        yield Claim("nvlink-links", Verdict.PASS, "narrow-by-design", "possible").finding(
            subject=subject, seen=0, unit="links", why=words
        )


def _why(m: Machine, narrow: list[int]) -> str:
    if m.host.virtual:
        return "inside a virtual machine the width is the provider's choice, not a fault of the link"
    if any(port.max_width for i in narrow for port in m.gpu(i).path):
        return "the port above has no more lanes than are in use: the board gives this slot that many"
    return "all cards have the same half of their lanes, as boards that split the slots give them"
