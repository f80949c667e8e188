"""A host's report as a rig card: one page of GitHub-flavored Markdown to paste into an issue."""

from collections.abc import Iterator, Sequence

from gpucheck.model import Gpu, Report, Verdict
from gpucheck.model.bandwidth import BandwidthReport, MeasuredPair
from gpucheck.model.diagnosis.observations import UnderLoad
from gpucheck.model.finding import Finding
from gpucheck.model.measurements import copies_of
from gpucheck.printable import of_printable, ranges
from gpucheck.render.blocks import Cell, Document, Lines, Properties, Row, Section, Table, document_of, words
from gpucheck.render.findings import TROUBLE, Group, deciding, group_equal, host_gpus, worst_first
from gpucheck.render.subjects.copies import PathRates, by_class
from gpucheck.render.subjects.report import memory_errors, stored_gpus
from gpucheck.render.topology import describe_link
from gpucheck.render.words import count_models, figure, plural, span, value

# Lines before the first table, and of what stands around one; the least number of rows.
HEAD = 6
AROUND, ROWS = 5, 6
HEADER = (
    "path",
    "pairs",
    "P2P allowed",
    "P2P works",
    "data correct",
    "one direction",
    "expected",
    "both directions",
    "latency",
)


def copy_section(copies: BandwidthReport | None, room: int) -> Iterator[Section]:
    """Yield the table and the basis of what is expected; nothing if no copy was made. room: the most lines."""
    if copies is None or not (copies.pairs or copies.host_device):
        return
    groups = by_class(copies)
    bases: dict[tuple[str, str], list[str]] = {}
    rows: list[Row] = [_row(copies, group) for group in groups]
    for group in groups:
        bases.setdefault((_expected(group), group.basis), []).append(group.cls)
    rows += _host(copies)
    most = max(ROWS, (room - AROUND) // 2)
    if len(rows) > most:
        rows[most - 1 :] = [[f"and {plural(len(rows) - most + 1, 'row')} more"]]
    expectations = [
        f"expected {expected}, {', '.join(dict.fromkeys(of))}: {basis}"
        for (expected, basis), of in bases.items()
        if basis
    ]
    shown = Lines(expectations[: max(0, room - AROUND - len(rows))])
    title = "Copies, GB/s (10^9 bytes per second), latency in us"
    yield Section("copies", title, [Table(words(*HEADER), rows), shown])


def _row(copies: BandwidthReport, group: PathRates) -> Row:
    sums = sorted(pair.both_ways_gb_s for pair in group.pairs if pair.both_ways_gb_s is not None)
    latencies = sorted(pair.latency_us for pair in group.pairs if pair.latency_us is not None)
    allowed, works = _access(copies, group)
    return [
        group.cls,
        str(len({frozenset((pair.src, pair.dst)) for pair in group.pairs})),
        allowed,
        works,
        _correct(copies, group),
        Cell(_ends(group.rates), *_part(group)) if group.rates else "not measured",
        _expected(group),
        _ends(sums),
        _ends(latencies),
    ]


def _expected(group: PathRates) -> str:
    if group.expected is not None:
        low = f" (at least {figure(group.low)})" if group.low is not None else ""
        return f"{figure(group.expected)}{low}"
    return "not known"


def _part(group: PathRates) -> tuple[str, str]:
    """Of what is expected, and how many values of both directions are too low; and the tone for that."""
    rates = group.rates
    slow = sum(rate < group.low for rate in rates) if group.low is not None else 0
    part = ""
    if group.expected:
        part = " to ".join(dict.fromkeys(f"{100 * rate / group.expected:.0f}" for rate in (rates[0], rates[-1]))) + " %"
    below = f"{slow} of {len(rates)} below" if slow else ""
    return ", ".join(filter(None, (part, below))), "off" if slow else ""


def _access(copies: BandwidthReport, group: PathRates) -> tuple[str, Cell | str]:
    seen = copies.observations
    granted = [_granted(copies, pair) for pair in group.pairs]
    count, total = sum(one is True for one in granted), len(granted)
    if all(one is None for one in granted):
        return "not known", "not known"
    words = {seen.p2p_status[p.src][p.dst] for p in group.pairs} if seen.p2p_status is not None else set()
    status = ", ".join(sorted(filter(None, words - {"OK"})))
    allowed = "yes" if count == total else f"{count} of {total}" if count else "no"
    failed = {way for one in seen.measured.failures for way in one.pairs}
    tried = [pair for pair, one in zip(group.pairs, granted, strict=True) if one]
    works = sum(pair.measured is not None and (pair.src, pair.dst) not in failed for pair in tried)
    outcome = Cell("yes") if works == len(tried) else Cell(f"{works} of {len(tried)}", tone="off")
    return allowed + (f" ({status})" if status else ""), outcome if tried else "not used"


def _granted(copies: BandwidthReport, pair: MeasuredPair) -> bool | None:
    access = copies.observations.p2p_access
    if access is None or isinstance(access, bool):
        return access
    return access[pair.src][pair.dst]


def _correct(copies: BandwidthReport, group: PathRates) -> Cell | str:
    bad = copies.observations.measured.integrity_bad_pairs
    if bad is None:
        return "not checked"
    wrong = {(pair.src, pair.dst) for pair in group.pairs} & set(bad)
    return Cell(f"no, {len(wrong)} of {len(group.pairs)} wrong", tone="off") if wrong else "yes"


def _host(copies: BandwidthReport) -> Iterator[Row]:
    rates = sorted(r for link in copies.host_device for r in (link.h2d_gb_s, link.d2h_gb_s) if r is not None)
    if rates:
        yield [f"host memory, {plural(len(copies.host_device), 'GPU')}", "", "", "", "", _ends(rates), "", "", ""]


def _ends(ordered: Sequence[float]) -> str:
    return span(ordered[0], ordered[-1]) if ordered else ""


GPU_ROWS = 6
GPU_HEADER = ("GPU", "NUMA", "PCIe link", "NVLinks", "memory", "memory errors", "power limit", "clocks throttled")


def gpu_rows(report: Report, copies: BandwidthReport | None) -> list[Row]:
    """Return a row for equal GPUs; nothing if the report names none."""
    equal: dict[tuple[str, ...], list[int]] = {}
    nodes = {gpu.index: gpu.numa_node for gpu in report.topology.gpus} if report.topology else {}
    for index, cells in _gpu_rows(report, copies):
        equal.setdefault(cells, []).append(index)
    shown = list(equal.items())
    rows: list[Row] = [[_gpu_names(found), _nodes(nodes, found), *cells] for cells, found in shown[:GPU_ROWS]]
    if len(shown) > GPU_ROWS:
        rest = sorted(index for _, found in shown[GPU_ROWS:] for index in found)
        rows.append([f"{_gpu_names(rest)}: in the JSON report"])
    return rows


def _gpu_names(found: list[int]) -> str:
    names = ranges(found).replace(",", ", ")
    return names if len(found) == 1 else f"{names} ({len(found)} GPUs)"


def _nodes(nodes: dict[int, int | None], found: list[int]) -> str:
    return ranges(sorted({node for node in map(nodes.get, found) if node is not None})).replace(",", ", ")


def _gpu_rows(report: Report, copies: BandwidthReport | None) -> Iterator[tuple[int, tuple[str, ...]]]:
    topology, kept = report.topology, stored_gpus(report)
    loaded = _loaded(copies)
    for gpu in topology.gpus if topology else ():
        bus_id = gpu.pci_bus_id or ""
        one, load = kept.get(bus_id), loaded.get(bus_id)
        yield (
            gpu.index,
            (
                _pcie(one, load),
                f"{one.active_nvlinks} of {len(one.nvlinks)} active" if one and one.nvlinks else "",
                _gpu_memory(one),
                memory_errors(one),
                _power(report, bus_id, one),
                _throttling(report, bus_id, load),
            ),
        )


def _loaded(copies: BandwidthReport | None) -> dict[str, UnderLoad]:
    if copies is None:
        return {}
    names = {place: device.bus_id or "" for place, device in enumerate(copies.devices)}
    return {names[one.gpu]: one for one in copies.observations.measured.under_load if one.gpu in names}


def _pcie(one: Gpu | None, load: UnderLoad | None) -> str:
    """``Gen5 x8 of Gen5 x16 under load``; an idle link lowers its generation to save power."""
    if load is not None and (load.gen or load.width):
        return _link_of((load.gen, load.width), (load.max_gen, load.max_width), "under load")
    if one is None:
        return ""
    link = one.pcie
    return _link_of((link.generation, link.width), (link.max_generation, link.max_width), "not under load")


def _link_of(now: tuple[int | None, int | None], most: tuple[int | None, int | None], when: str) -> str:
    able = "" if now == most or not any(most) else f" of {describe_link(*most)}"
    return f"{describe_link(*now)}{able}, {when}" if any(now) else "not known"


def _gpu_memory(one: Gpu | None) -> str:
    if one is None or one.memory_mib is None:
        return ""
    ecc = "" if one.health.ecc is None else ", ECC on" if one.health.ecc else ", ECC off"
    return f"{one.memory_mib:,} MiB{ecc}"


def _power(report: Report, bus_id: str, one: Gpu | None) -> str:
    if one is None or one.health.power_limit_w is None:
        return ""
    lowered = (f.wanted for f in report.findings if f.check == "power-limit" and f.subject == f"gpu:{bus_id}")
    default = next((value for value in lowered if isinstance(value, int | float)), None)
    return f"{one.health.power_limit_w:g} W" + (f" of {default:g} W" if default is not None else "")


def _throttling(report: Report, bus_id: str, load: UnderLoad | None) -> str:
    if load is not None and load.throttled is not None:
        return f"{', '.join(load.throttled)}, under load" if load.throttled else "no, under load"
    seen = [f for f in report.findings if f.check == "throttle" and f.subject == f"gpu:{bus_id}"]
    if not seen:
        return ""
    return "no, not under load" if all(f.verdict is Verdict.PASS for f in seen) else str(seen[0].seen or seen[0].why)


MOST_LINES = 60
FINDINGS = 8
LONGEST = 160
# With another verdict the value was not read.
READ = (Verdict.PASS, Verdict.WARN, Verdict.FAIL)
NOT_LISTED = ("gpucheck", "driver", "cuda")
# Checks whose values do not name their quantity.
PREFIX = {"bar1": "BAR1", "fabric": "fabric:"}
# What a copy between GPUs depends on, in the order of the card.
SETTINGS = ("iommu", "acs", "bar1", "fabric", "mig", "persistence", "cpu-governor")


@of_printable
def document(report: Report, *, named: bool = False) -> Document:
    """Return the card, at most MOST_LINES lines of Markdown. named: with the name of the host."""
    found = copies_of(report.measurements)
    rows = _findings(report)
    machine = Properties([(label, text) for label, text in _facts(report, found, named=named) if text])
    gpus = gpu_rows(report, found)
    nothing = "Nothing is wrong." if report.verdict is Verdict.PASS else "Nothing was evaluated."
    columns = words("verdict", "finding", "cause", "command that confirms it")
    # A heading with an empty line before and after it, and a table with its header and an empty line.
    used = HEAD + sum(2 + 3 + len(part) for part in (machine.pairs, rows, gpus) if part)
    state = Section("gpus", "Links under load, memory, power", [Table(words(*GPU_HEADER), gpus)])
    return document_of(
        report,
        "verify",
        host="",
        started=f"gpucheck {report.versions.get('gpucheck') or ''}, {report.started}",
        unproven=report.not_proven,
        body=[
            Table(columns, rows) if rows else Lines([nothing]),
            Section("machine", "Machine", [machine]),
            *([state] if gpus else []),
            *copy_section(found, MOST_LINES - used),
        ],
    )


def _findings(report: Report) -> list[Row]:
    """What is wrong, each with its cause and the command that confirms it; and what passes for a known cause."""
    rows = [
        _finding(group)
        for group in worst_first(report.findings, host_gpus(report))
        if group.verdict in TROUBLE
        or (group.verdict is Verdict.PASS and group.first.cause and group.first.confidence in ("certain", "likely"))
    ]
    if len(rows) > FINDINGS:
        rows[FINDINGS - 1 :] = [["", f"and {len(rows) - FINDINGS + 1} findings more: gpucheck verify --format text"]]
    return rows


def _finding(group: Group) -> Row:
    causes = ", ".join([group.cause, *(f"or {one.cause}" for one in group.others)]) if group.cause else ""
    return [
        Cell("", verdict=group.verdict),
        _short(f"{', '.join(group.checks)}: {group.headline}"),
        causes or _short(group.why),
        Cell(deciding(group), command=True),
    ]


def _facts(report: Report, found: BandwidthReport | None, *, named: bool) -> Iterator[tuple[str, str]]:
    system, versions, common = report.system, report.versions, report.attributes
    if named:
        yield "host", report.host
    bios = [f"BIOS {value}" for value in common.get("bios", ())]
    virtual = f"virtual machine ({system.virtual})" if system.virtual else ""
    yield "board", _joined(*common.get("board", ()), *bios, virtual, system.container)
    seen = found.observations.host if found else None
    if seen is not None and seen.cpu:
        yield "CPU", f"{seen.sockets} x {seen.cpu}" if seen.sockets else seen.cpu
    yield "GPUs", _gpus(report)
    yield "system", _joined(system.os_name, f"kernel {system.kernel}", system.arch)
    module = _joined(*(f"{name} kernel modules" for name in common.get("module", ())))
    numbers = {**versions, "CUDA": versions.get("cuda")}
    known = [f"{name} {numbers[name]}" for name in ("CUDA", *versions) if name not in NOT_LISTED and numbers[name]]
    driver = f"driver {versions['driver']}" if versions.get("driver") else "no driver"
    driver += f" ({module})" if module else ""
    held = common.get("hold", ())
    yield "driver set", _joined(driver, *known, f"held: {_joined(*held)}" if held else "")
    yield "settings", "; ".join(_settings(report))


def _gpus(report: Report) -> str:
    if report.topology is None:
        return ""
    vbios = report.attributes.get("vbios", ())
    return _joined(*count_models(report.topology.gpus), f"VBIOS {' and '.join(vbios)}" if vbios else "") or "none"


def _settings(report: Report) -> Iterator[str]:
    for check in SETTINGS:
        evaluated = [f for f in report.findings if f.check == check and f.verdict in READ and f.seen is not None]
        yield from dict.fromkeys(_setting(group) for group in group_equal(evaluated, host_gpus(report)))


def _setting(group: Group) -> str:
    first: Finding = group.first
    words = value(first, first.seen)
    read = " ".join(filter(None, (PREFIX.get(first.check), words)))
    return _short(f"{read} ({group.where})" if group.where else read)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3].rstrip()}..."


def _joined(*parts: str | None) -> str:
    return ", ".join(filter(None, parts))
