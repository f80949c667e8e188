"""PCIe links as they were read: GPUs, slots, and ways up that GPUs share."""

from collections.abc import Iterator

from gpucheck.diagnose._case import Case, Claim
from gpucheck.diagnose.machine import Machine, link_of
from gpucheck.diagnose.suspects import low_link, low_uplinks, may_be_chipset, with_limits
from gpucheck.model.diagnosis.observations import Port
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict

# By field: what is printed before its value, and the codes of a link that was read under load, at another time, and
# under load although more passed it.
FIELDS = {
    "gen": ("Gen", "links.generation-low", "links.generation-low-unloaded", "links.generation-changing"),
    "width": ("x", "links.width-low", "pcie.width-reduced", "links.width-changing"),
}
MORE_PASSED = 0.98  # of the raw rate of the link that was read: the reading is not what the copies had
CHIPSET_LANES = 4


def rule(case: Case) -> Iterator[Finding]:
    """Links below their design, lanes that are fewer by design, GPUs on the chipset, ways up below their maximum."""
    m = case.machine
    for i in range(m.count):
        for field in FIELDS:
            if low_link(m, i, field) and not (m.host.virtual and (field == "gen" or m.is_narrow_by_design(i))):
                yield from _low(m, i, field)
        if m.is_behind_chipset(i):
            bridge = next(port.bus_id for port in m.gpu(i).path if port.kind == "chipset")
            yield Claim("pcie-link", Verdict.WARN).finding(
                "links.behind-chipset",
                subject=m.gpu_label(i),
                seen="its path crosses the chipset",
                wanted="lanes of the CPU",
                evidence=(f"path: {bridge or 'chipset'}",),
            )
    yield from _narrow_by_design(m)
    for group in m.uplinks:
        for port in low_uplinks(m, group):
            yield _uplink(group, port)


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
    sure = port.read == "load" and slot_read and not others and not changing
    verdict = (
        Verdict.FAIL
        if sure
        else Verdict.WARN
        if slot_read and (port.read != "idle" or field == "width")
        else Verdict.UNKNOWN
    )
    state = f"Gen{port.gen or '?'} x{port.width or '?'} of Gen{port.max_gen or '?'} x{port.max_width or '?'}"
    sign, loaded, unloaded, changed = FIELDS[field]
    passed = [f"{m.passed[i]:.1f} GB/s passed the link"] if changing else []
    yield Claim("pcie-link", verdict, None, "certain" if sure else "likely", others).finding(
        unloaded if port.read != "load" else changed if changing else loaded,
        subject=m.gpu_label(i),
        seen=f"{sign}{now}",
        wanted=f"{sign}{limit}",
        now=now,
        limit=limit,
        evidence=(f"{state}, read {port.read or 'at an unknown time'}", *passed),
    )


def _narrow_by_design(m: Machine) -> Iterator[Finding]:
    """Fewer lanes than the card has, because of the slot, the board or the provider of a guest."""
    narrow = [i for i in range(m.count) if m.is_narrow_by_design(i)]
    halves = [i for i in range(m.count) if i not in narrow and _is_half(m, i)]
    if narrow:
        pcie, above = m.gpu(narrow[0]).pcie, any(port.max_width for i in narrow for port in m.gpu(i).path)
        shared = "links.narrow-slot" if above else "links.narrow-split"
        yield Claim("pcie-lanes", Verdict.PASS).finding(
            "links.narrow-in-guest" if m.host.virtual else shared,
            subject="host" if len(narrow) > 1 else m.gpu_label(narrow[0]),
            seen=f"x{pcie.width}",
            wanted=f"x{pcie.max_width}",
        )
    if len(halves) > 1:
        yield Claim("pcie-lanes", Verdict.PASS, others=("pcie-width-reduced",)).finding(
            "links.lanes-halved",
            seen=f"x{m.gpu(halves[0]).pcie.width}",
            wanted=f"x{m.design[halves[0]][1]}",
            count=len(halves),
        )


def _is_half(m: Machine, i: int) -> bool:
    width, design = m.gpu(i).pcie.width, m.design[i][1]
    return bool(width and design and width * 2 == design) and not any(own.max_width for own in m.own_ports(i))


def _uplink(group: frozenset[int], port: Port) -> Finding:
    sure = port.read == "load"
    return Claim("uplink", Verdict.FAIL if sure else Verdict.WARN, None, "certain" if sure else "likely").finding(
        "pcie.uplink-reduced",
        subject=f"link:{port.bus_id}" if port.bus_id else "host",
        seen=f"Gen{port.gen} x{port.width}",
        wanted=f"Gen{port.max_gen} x{port.max_width}",
        gpus=len(group),
        port=port.bus_id or "BUS_ID",
        evidence=(f"read {port.read or 'at an unknown time'}, above GPUs {', '.join(map(str, sorted(group)))}",),
    )
