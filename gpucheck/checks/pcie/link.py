"""PCIe link: has every GPU trained all the lanes that it and its slot are able to use?

Sources: nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetMaxPcieLinkWidth (minimum of device and system by the header, the
device's alone on some hosts), max_link_width of the GPU and of the port above it in sysfs, and the generation calls.
The current generation is not evaluated here: an idle card lowers it to save power, so it means something only while
copying.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from gpucheck.checks._case import Case, link_words, observed
from gpucheck.checks._machine import Machine, link_of
from gpucheck.checks._nvml import about, not_reported, of_each_gpu, quick_check, set_by_the_host
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Gpu, NvmlReading, Verdict
from gpucheck.model.diagnosis.observations import Port
from gpucheck.model.facts import Facts
from gpucheck.topology.build import network_cards
from gpucheck.topology.wiring import gpu_link

NAME = "pcie-link"
# By field: what is printed before its value, and the codes of a low link, and of one through which more passed.
FIELDS = {
    "gen": ("Gen", "links.generation-low", "links.generation-changing"),
    "width": ("x", "pcie.width-reduced", "links.width-changing"),
}
MORE_PASSED = 0.98  # of the raw rate of the link that was read: the reading is not what the copies had
CHIPSET_LANES = 4
CALLS = ("nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkWidth")


def evaluate(facts: Facts) -> Iterator[Finding]:
    """One finding a GPU, and one for each network card with a reduced link; an idle card keeps its generation."""
    yield from _of_gpus(facts)
    yield from _of_cards(facts)


@of_each_gpu(NAME, nothing="pcie.no-link-width")
def _of_gpus(facts: Facts, gpu: Gpu) -> Finding | None:
    devices = {device.bus_id: device for device in facts.pci}
    known = gpu.pcie.width is not None and gpu.pcie.max_width is not None
    link, device = gpu.pcie if known else gpu_link(gpu, devices), devices.get(gpu.pci_bus_id)
    if known and device and device.link.max_width:  # of both ends; NVML's is that of the card alone on some hosts
        link = replace(link, max_width=min(device.link.max_width, link.max_width or 0))
    if link.width is None or link.max_width is None or not (known or link.width < link.max_width):
        return not_reported(NAME, facts.nvml, gpu, *CALLS, what="PCIe link width")
    subject = about(
        NAME,
        gpu,
        f"current {link_words(link.generation, link.width)}",
        f"device and slot allow {link_words(link.max_generation, link.max_width)}",
        *((f"device alone allows Gen{link.device_max_generation}",) if link.device_max_generation else ()),
        unit="lanes",
    )
    if link.width <= 0 or link.max_width <= 0:
        return subject.unknown("pcie.link-width-unknown", width=link.width, max_width=link.max_width)
    if link.width >= link.max_width:
        return subject.passes(link.width)
    if facts.system.virtual is not None:
        # Real captures of L40S and T4 cloud machines show x8 of x16 by design: the guest does not see the real slot.
        return set_by_the_host(NAME, facts.system.virtual, subject.name, subject.evidence)
    return subject.fails("pcie.width-reduced", link.width, link.max_width)


def _of_cards(facts: Facts) -> Iterator[Finding]:
    devices = {device.bus_id: device for device in facts.pci}
    gpus = facts.nvml.gpus if isinstance(facts.nvml, NvmlReading) else ()
    cards = {card.pci_bus_id or "" for card in network_cards(gpus, devices)}
    for card in () if facts.system.virtual else sorted(cards & devices.keys()):
        link = devices[card].link
        lines = (f"/sys/bus/pci/devices/{card}/current_link_width, current_link_speed",)
        subject = Subject(check=NAME, name=f"nic:{card}", evidence=lines)
        seen, wanted = link_words(link.generation, link.width), link_words(link.max_generation, link.max_width)
        if link.is_narrow:
            yield subject.warns("pcie.nic-lanes-reduced", seen, wanted, device=card)
        elif link.is_slow:
            yield subject.warns("pcie.nic-generation-reduced", seen, wanted, device=card)


def rule(case: Case) -> Iterator[Finding]:
    """Links below their design, lanes that are fewer by design, GPUs on the chipset, as tools and copies show them."""
    m = case.machine
    for i in range(m.count):
        for field in FIELDS:
            if low_link(m, i, field) and not (m.host.virtual and (field == "gen" or m.is_narrow_by_design(i))):
                yield from _low(m, i, field)
        if m.is_behind_chipset(i):
            bridge = next(port.bus_id for port in m.gpu(i).path if port.kind == "chipset")
            subject = observed(NAME, m.gpu_label(i), f"path: {bridge or 'chipset'}")
            yield subject.warns("links.behind-chipset", "its path crosses the chipset", "lanes of the CPU")
    yield from _narrow_by_design(m)


def _low(m: Machine, i: int, field: str) -> Iterator[Finding]:
    port, now, limit = next(row for row in with_limits(m, i, field) if row[1] < row[2])
    through = link_of(port.gen if field == "gen" else m.design[i][0], port.width or m.design[i][1])
    if through and m.passed[i] > MORE_PASSED * through.gb_s and port.read != "load":
        return
    changing = port.read == "load" and through is not None and m.passed[i] > through.gb_s
    half = field == "width" and now * 2 == limit and not any(own.max_width for own in m.own_ports(i))
    if half and sum((gpu.pcie.width or 16) < 16 for gpu in m.seen.gpus) > 1:
        return  # named once for the host: boards that split their slots
    chipset = field == "width" and now <= CHIPSET_LANES and may_be_chipset(m, [i])
    others = (*(["narrow-by-design"] if half else []), *(["gpu-behind-chipset"] if chipset else []))
    # The data sheet of the card is no reading of the slot: the CPU or the board may give no more.
    slot_read = bool(getattr(port, f"max_{field}"))
    # An idle link may lower its speed, never its lanes.
    at_its_best = port.read == "load" or (port.read == "idle" and field == "width")
    sure = at_its_best and slot_read and not others and not changing
    verdict = Verdict.WARN if slot_read and (port.read != "idle" or field == "width") else Verdict.UNKNOWN
    state = f"{link_words(port.gen, port.width)} of {link_words(port.max_gen, port.max_width)}"
    sign, low, changed = FIELDS[field]
    passed = [f"{m.passed[i]:.1f} GB/s passed the link"] if changing else []
    subject = observed(NAME, m.gpu_label(i), f"{state}, read {port.read or 'at an unknown time'}", *passed)
    values: dict[str, Any] = {"confidence": "certain" if sure else "likely", "now": now, "limit": limit}
    verdict, code = Verdict.FAIL if sure else verdict, changed if changing else low
    yield subject.finding(verdict, code, f"{sign}{now}", f"{sign}{limit}", others=others, **values)


def _narrow_by_design(m: Machine) -> Iterator[Finding]:
    """Fewer lanes than the card has, because of the slot, the board or the provider of a guest."""
    narrow = [i for i in range(m.count) if m.is_narrow_by_design(i)]
    halves = [
        i
        for i in range(m.count)
        if i not in narrow and (width := m.gpu(i).pcie.width) and width * 2 == m.design[i][1]
        if not any(own.max_width for own in m.own_ports(i))
    ]
    if narrow:
        pcie, above = m.gpu(narrow[0]).pcie, any(port.max_width for i in narrow for port in m.gpu(i).path)
        shared = "links.narrow-slot" if above else "links.narrow-split"
        subject = observed("pcie-lanes", "host" if len(narrow) > 1 else m.gpu_label(narrow[0]))
        code = "links.narrow-in-guest" if m.host.virtual else shared
        yield subject.explains(code, f"x{pcie.width}", f"x{pcie.max_width}")
    if len(halves) > 1:
        seen, wanted = f"x{m.gpu(halves[0]).pcie.width}", f"x{m.design[halves[0]][1]}"
        values = {"others": ("pcie-width-reduced",), "count": len(halves)}
        yield observed("pcie-lanes").explains("links.lanes-halved", seen, wanted, **values)


def low_link(m: Machine, i: int, field: str) -> bool | None:
    """Return whether the link of GPU i was read below what card and slot are made for. field: ``gen`` or ``width``.

    An idle link lowers its generation to save power, so an idle reading shows nothing about it.
    """
    found = None
    for port, now, limit in with_limits(m, i, field):
        if now >= limit:
            found = False if found is None and port.read == "load" else found
        elif field == "width" or port.read == "load" or (port.read is None and now > 1):
            return True
    return found


def with_limits(m: Machine, i: int, field: str) -> Iterator[tuple[Port, int, int]]:
    """Yield the readings of the link of GPU i with the value of the field, and the least that it is made for."""
    design = m.design[i][0 if field == "gen" else 1]
    for port in m.read_links(i):
        now, limits = getattr(port, field), [limit for limit in (getattr(port, f"max_{field}"), design) if limit]
        if now and limits:
            yield port, now, min(limits)


def may_be_chipset(m: Machine, gpus: list[int]) -> bool:
    """Return whether a slot of the chipset is possible: one socket, few GPUs, no guest or server card, no path."""
    read = any(port.kind for i in gpus for port in m.gpu(i).path)
    near = any(m.is_near(pair) for pair in m.pairs if set(pair) & set(gpus))
    server = any(model and model.cls == "datacenter" for i in gpus if (model := m.models[i]))
    return not (read or near or server or m.host.virtual) and m.count <= 6 and (m.host.sockets or 1) == 1


CHECK = quick_check(NAME, "hardware pcie", evaluate, ("nvml", "pci", "system"))
