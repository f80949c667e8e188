"""PCIe path: does every link between a GPU and its CPU run at the speed and width that its two ends support?

Source: sysfs {current,max}_link_{speed,width} of every bridge above the GPU (Linux 4.13 and newer). An idle GPU lowers
the speed of its own link, which is why the pcie-link check covers that one; the links further up do not.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from gpucheck.checks._case import Case, link_words
from gpucheck.checks._machine import Machine
from gpucheck.checks._nvml import no_gpu_on_the_bus, quick_check, set_by_the_host
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, PciDevice, Verdict
from gpucheck.model.diagnosis.observations import Port
from gpucheck.model.facts import Facts

NAME = "pcie-path"
CODE = "pcie.uplink-reduced"


def evaluate(facts: Facts) -> Iterator[Finding]:
    """One finding for each reduced link with the GPUs behind it, else one for the host."""
    gpus = [device for device in facts.pci if device.is_nvidia_gpu]
    if not gpus:
        yield no_gpu_on_the_bus(NAME)
        return
    if facts.system.virtual is not None:
        yield set_by_the_host(NAME, facts.system.virtual)
        return
    hops = {device.bus_id: device for device in facts.pci}
    # GPUs by the bridge above them, without the port that holds the GPU: its link is the GPU's own.
    behind: dict[str, list[str]] = {}
    for gpu in gpus:
        for bus_id in gpu.path[:-1]:
            if bus_id in hops:
                behind.setdefault(bus_id, []).append(gpu.bus_id)
    if not behind:
        yield Subject(check=NAME).skips("pcie.no-switch-above")
        return
    links = {bus_id: hops[bus_id].link for bus_id in behind}
    reduced = {bus_id: below for bus_id, below in behind.items() if links[bus_id].is_narrow or links[bus_id].is_slow}
    for bus_id, below in reduced.items():
        hop = hops[bus_id]
        above = hops.get(hop.path[-1]) if hop.path and hop.kind != "switch-downstream" else None
        # Where the port above is the other end of the same link, one finding is enough.
        if above is None or above.bus_id not in reduced or above.link != hop.link:
            yield _narrow(hop, below)
    if not reduced:
        yield _whole(gpus, [hops[bus_id] for bus_id in behind])


def _narrow(hop: PciDevice, gpus: list[str]) -> Finding:
    link = hop.link
    line = f"sysfs {hop.bus_id} ({hop.kind or 'bridge'}): {link_words(link.generation, link.width)}"
    most = link_words(link.max_generation, link.max_width)
    lines = (f"{line}, both ends support {most}", f"behind it: {', '.join(gpus)}")
    port = Port(bus_id=hop.bus_id, gen=link.generation, width=link.width, max_gen=link.max_generation, read="idle")
    return _reduced(NAME, replace(port, max_width=link.max_width), len(gpus), lines)


def _reduced(check: str, port: Port, gpus: int, lines: tuple[str, ...]) -> Finding:
    """Of a link that was read at an unknown time it is not known whether it was at its best.

    An idle link may lower its speed, never its lanes; those above a switch are not seen to lower it.
    """
    subject = Subject(check=check, name=f"link:{port.bus_id}" if port.bus_id else "host", evidence=lines)
    seen, wanted = f"PCIe uplink {link_words(port.gen, port.width)}", link_words(port.max_gen, port.max_width)
    sure = port.read == "load" or (port.read == "idle" and (port.width or 0) < (port.max_width or 0))
    values: dict[str, Any] = {
        "confidence": "certain" if sure else "likely",
        "gpus": gpus,
        "port": port.bus_id or "BUS_ID",
    }
    return subject.finding(Verdict.FAIL if port.read else Verdict.WARN, CODE, seen, wanted, **values)


def _whole(gpus: list[PciDevice], hops: list[PciDevice]) -> Finding:
    links = {hop.bus_id: (hop.link.generation, hop.link.width) for hop in hops}
    limits = {hop.bus_id: (hop.link.max_generation, hop.link.max_width) for hop in hops}
    unknown = [bus_id for bus_id, link in links.items() if None in (*link, *limits[bus_id])]
    host = Subject(check=NAME, evidence=tuple(f"sysfs {bus_id}: {link_words(*link)}" for bus_id, link in links.items()))
    if unknown:
        return host.unknown("pcie.uplinks-unknown", unknown=len(unknown), links=len(hops))
    return host.passes(f"{len(hops)} PCIe links above {len(gpus)} GPUs at full speed and width")


def rule(case: Case) -> Iterator[Finding]:
    """Ways up that GPUs share below their maximum, as tools printed them."""
    m = case.machine
    for group in m.uplinks:
        for port in low_uplinks(m, group):
            gpus = ", ".join(map(str, sorted(group)))
            lines = (f"read {port.read or 'at an unknown time'}, above GPUs {gpus}",)
            yield _reduced("uplink", port, len(group), lines)


def low_uplinks(m: Machine, group: frozenset[int]) -> list[Port]:
    """Return the ports of a way up read below what the slowest of them can do; a guest is not shown its real links."""
    ports = () if m.host.virtual else m.uplinks[group]
    gen = min((port.max_gen for port in ports if port.max_gen), default=0)
    width = min((port.max_width for port in ports if port.max_width), default=0)
    slow = [port for port in ports if port.gen and port.gen < gen]
    return slow + [port for port in ports if port.width and port.width < width and port not in slow]


CHECK = quick_check(NAME, "hardware pcie", evaluate, ("pci", "system"))
