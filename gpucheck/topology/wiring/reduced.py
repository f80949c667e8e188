"""Findings about PCIe links that run below what both their ends allow."""

from collections.abc import Iterator

from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict
from gpucheck.model.host.hardware import PcieLink
from gpucheck.model.host.wiring import WiredFunction, Wiring
from gpucheck.topology.wiring import is_reduced

SUBJECT = {"gpu": "gpu", "nic": "nic"}


def reduced_findings(wiring: Wiring, virtual: str | None) -> Iterator[Finding]:
    """Yield one finding for each link, at its lower end. virtual: links of a hypervisor are SKIP."""
    for function in wiring.functions:
        if is_reduced(function):
            yield _finding(function, virtual)


def _finding(function: WiredFunction, virtual: str | None) -> Finding:
    link, uplink = function.link, function.kind == "switch-upstream"
    lanes = link.width is not None and link.max_width is not None and link.width < link.max_width
    seen = PcieLink(generation=link.generation if uplink else link.max_generation, width=link.width)
    cause = "uplink-downgraded" if uplink else "pcie-width-reduced"
    what = "with fewer lanes" if lanes else "at a lower speed"
    return Finding(
        check="topology",
        verdict=Verdict.SKIP if virtual else Verdict.WARN,
        subject=f"{SUBJECT.get(function.kind, 'link')}:{function.bus_id}",
        seen=f"Gen{seen.generation} x{seen.width}",
        wanted=f"Gen{link.max_generation} x{link.max_width}",
        cause=None if virtual else cause,
        confidence=None if virtual else "likely",
        why=f"{virtual} makes up the PCI links of this machine"
        if virtual
        else f"{'this switch' if uplink else 'this device'} trained {what} than both ends have: "
        + ("every GPU below it shares what is left" if uplink else "a loose card, riser, or a slot split in firmware"),
        fix="" if virtual else f"reseat the card or cable, check slot bifurcation: lspci -vv -s {function.bus_id}",
        evidence=(f"/sys/bus/pci/devices/{function.bus_id}/current_link_width, current_link_speed",),
    )
