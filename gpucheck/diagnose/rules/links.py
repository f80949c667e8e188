"""PCIe links as they were read: GPUs, slots, and ways up that GPUs share."""

from collections.abc import Iterator

from gpucheck.diagnose._case import Case, Claim
from gpucheck.diagnose.machine import Machine, link_of
from gpucheck.diagnose.suspects import low_link, low_uplinks, may_be_chipset, with_limits
from gpucheck.knowledge import causes
from gpucheck.model.diagnosis.observations import Port
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict

FIELDS = (("gen", "Gen", "pcie-link-downgraded"), ("width", "x", "pcie-width-reduced"))
MORE_PASSED = 0.98  # of the raw rate of the link that was read: the reading is not what the copies had
CHIPSET_LANES = 4


def rule(case: Case) -> Iterator[Finding]:
    """Links below their design, lanes that are fewer by design, GPUs on the chipset, ways up below their maximum."""
    m = case.machine
    for i in range(m.count):
        for field, sign, cause in FIELDS:
            if low_link(m, i, field) and not (m.host.virtual and (field == "gen" or m.is_narrow_by_design(i))):
                yield from _low(m, i, field, sign, cause)
        if m.is_behind_chipset(i):
            bridge = next(port.bus_id for port in m.gpu(i).path if port.kind == "chipset")
            yield Claim("pcie-link", Verdict.WARN, "gpu-behind-chipset", "certain").finding(
                subject=m.gpu_label(i),
                seen="its path crosses the chipset",
                wanted="lanes of the CPU",
                why=causes()["gpu-behind-chipset"].meaning,
                fix="lspci -tv shows the path",
                evidence=(f"path: {bridge or 'chipset'}",),
            )
    yield from _narrow_by_design(m)
    for group in m.uplinks:
        for port in low_uplinks(m, group):
            yield _uplink(group, port)


def _low(m: Machine, i: int, field: str, sign: str, cause: str) -> Iterator[Finding]:
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
    yield Claim("pcie-link", verdict, cause, "certain" if sure else "likely", others).finding(
        subject=m.gpu_label(i),
        seen=f"{sign}{now}",
        wanted=f"{sign}{limit}",
        why=(f"generation {now} of {limit}" if field == "gen" else f"{now} of {limit} lanes")
        + f": {causes()[cause].meaning}"
        + ("" if port.read == "load" else "; it was not read while copying")
        + (
            f"; {m.passed[i]:.3g} GB/s passed it, more than such a link carries: the link changes its speed"
            if changing
            else ""
        ),
        fix="nvidia-smi -q -d PCIE while copying shows the link and its maximum",
        evidence=(f"{state}, read {port.read or 'at an unknown time'}",),
    )


def _narrow_by_design(m: Machine) -> Iterator[Finding]:
    """Fewer lanes than the card has, because of the slot, the board or the provider of a guest."""
    narrow = [i for i in range(m.count) if m.is_narrow_by_design(i)]
    halves = [i for i in range(m.count) if i not in narrow and _is_half(m, i)]
    if narrow:
        pcie, above = m.gpu(narrow[0]).pcie, any(port.max_width for i in narrow for port in m.gpu(i).path)
        if m.host.virtual:
            why = "inside a virtual machine the width is the provider's choice, not a fault of the link"
        elif above:
            why = "the port above has no more lanes than are in use: the board gives this slot that many"
        else:
            why = "all cards have the same half of their lanes, as boards that split the slots give them"
        yield Claim(
            "pcie-lanes", Verdict.PASS, "narrow-by-design", "likely" if m.host.virtual or above else "possible"
        ).finding(
            subject="host" if len(narrow) > 1 else m.gpu_label(narrow[0]),
            seen=f"x{pcie.width}",
            wanted=f"x{pcie.max_width}",
            why=why,
        )
    if len(halves) > 1:
        yield Claim("pcie-lanes", Verdict.PASS, "narrow-by-design", "possible", ("pcie-width-reduced",)).finding(
            seen=f"x{m.gpu(halves[0]).pcie.width}",
            wanted=f"x{m.design[halves[0]][1]}",
            why=f"{len(halves)} cards have half of their lanes, as boards that split the slots give them",
        )


def _is_half(m: Machine, i: int) -> bool:
    width, design = m.gpu(i).pcie.width, m.design[i][1]
    return bool(width and design and width * 2 == design) and not any(own.max_width for own in m.own_ports(i))


def _uplink(group: frozenset[int], port: Port) -> Finding:
    sure = port.read == "load"
    return Claim(
        "uplink", Verdict.FAIL if sure else Verdict.WARN, "uplink-downgraded", "certain" if sure else "likely"
    ).finding(
        subject=f"link:{port.bus_id}" if port.bus_id else "host",
        seen=f"Gen{port.gen} x{port.width}",
        wanted=f"Gen{port.max_gen} x{port.max_width}",
        why=f"the way up from GPUs {', '.join(map(str, sorted(group)))} runs below its maximum, and they share the "
        "loss",
        fix=f"lspci -vv -s {port.bus_id or 'BUS_ID'} while copying shows speed and width (LnkSta)",
        evidence=(f"read {port.read or 'at an unknown time'}",),
    )
