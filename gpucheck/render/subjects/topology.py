"""A topology: for a terminal in a layout that `gpucheck topo --import` reads, for a page with a drawing and links."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from gpucheck.model import Advice, Finding, Gpu, GpuProcess, Pair, Topology, TopologyGpu, Verdict, worst
from gpucheck.model.finding import bus_ids
from gpucheck.model.host.wiring import Nic
from gpucheck.printable import of_printable, ranges
from gpucheck.render.blocks import (
    Block,
    Cell,
    Column,
    Document,
    Drawing,
    Findings,
    Lines,
    Row,
    Section,
    Table,
    numbers,
    words,
)
from gpucheck.render.findings import worst_first
from gpucheck.render.topology import FaultMark, absent, boxes, faults, heading, nvlinks
from gpucheck.render.words import number, plural

GAP = "?"
MISSING = "N/A"
LABEL_WIDTH = 24
MEANING = {
    "NV#": "joined by # NVLinks",
    "PIX": "at most one PCIe switch",
    "PXB": "several PCIe switches, not the host bridge",
    "PHB": "the PCIe host bridge (the CPU)",
    "NODE": "host bridges of one NUMA node",
    "SYS": "the link between NUMA nodes or sockets",
    GAP: "not known",
}
NAMED_PAIRS = 6
# Of more GPUs than this, equal ones are one.
MANY_GPUS = 16
NAMED_LINKS = 4


@of_printable
def document(
    topology: Topology, *, about: str = "", width: int | None = None, best: bool = False, whole: bool = False
) -> Document:
    """The matrix, what the pairs should reach, the advice and the findings.

    about: what is simulated (the profile and its faults). width: the terminal's columns; without, a line of the matrix
    is never cut, however wide, and can be read back. best: the choices of GPUs too. whole: for a page.
    """
    found = Findings(worst_first(topology.findings, [gpu.pci_bus_id for gpu in topology.gpus if gpu.pci_bus_id]))
    exports = [Cell(f"export {line}", command=True) for line in topology.variables]
    rates = [*_expectations(topology), *_advice(topology.advice, best)]
    rates += [Lines(exports, "Jobs of several hosts use the network cards of the GPUs with")] if exports else []
    verdicts = [finding.verdict for finding in topology.findings]
    cards = [*_network_cards(topology)]
    body: list[Block] = [*_identities(topology, width), *matrix(topology, width), *_legends(topology), *cards, *rates]
    if whole:
        allowed = [Section("rates", "What the links allow", rates)] if rates else []
        gpus = [gpu_section(topology, topology.findings, {})] if topology.gpus else []
        nics = [Section("nics", "Network cards", [card._replace(title="") for card in cards])] if cards else []
        body = [*gpus, *nics, *sections(topology, topology.findings, about), *allowed]
    return Document(
        command="topo",
        host=heading(topology, topology.findings),
        verdict=worst(verdicts) if set(verdicts) - {Verdict.SKIP} else Verdict.PASS,
        counts={verdict.value: verdicts.count(verdict) for verdict in Verdict},
        schema=topology.schema,
        simulated=(about or "hardware") if topology.simulated else None,
        framed=False,
        findings=found if whole else None,
        body=body,
        foot=[] if whole or not topology.findings else [found],
    )


def kind_of(cls: str | None) -> str:
    """The class without its count of links."""
    return GAP if cls is None else "NV#" if cls.startswith("NV") else cls


def matrix(topology: Topology, width: int | None = None) -> Iterator[Block]:
    """One line a GPU and network card: classes, then the affinity columns that hold anything.

    A matrix that does not fit the width is shown with GPUs that differ in nothing as one row: a table each for the
    classes to GPUs, those to network cards, and the affinity.
    """
    if not topology.gpus:
        return
    header, rows = _cells(topology)
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    count = len(topology.gpus)
    last = count + 1 + len(topology.nics)
    if width is None or sum(widths) + 2 * len(widths) - 2 <= width:
        yield _classes(header, rows, last)
        return
    yield Lines(["GPUs that differ in nothing share a row.", "A cell at its own column is the class between them."])
    groups = like_gpus(topology)
    names = [_shortened(ranges([topology.gpus[i].index for i in group])) for group in groups]
    yield _classes(["", *names], _between(topology, names, groups), len(groups) + 1)
    for start, end in ((count + 1, last), (last, len(header))):
        if start == end:
            continue
        equal: dict[tuple[str, ...], list[int]] = {}
        for i, row in enumerate(rows[:count]):
            equal.setdefault(tuple(row[start:end]), []).append(topology.gpus[i].index)
        cells = [[_shortened(ranges(members)), *values] for values, members in equal.items()]
        cells += [[row[0], *row[start:end]] for row in rows[count:] if any(row[start:end])]
        yield _classes(["", *header[start:end]], cells, end - start + 1 if end == last else 1)


def _classes(header: list[str], rows: list[list[str]], end: int, title: str = "", about: str = "") -> Table:
    shown: list[Row] = [[row[0], *map(_path, row[1:end]), *row[end:]] for row in rows]
    return Table(words(*header), shown, title, about, "classes")


@lru_cache(256)
def _path(cell: str) -> Cell:
    return Cell(cell, tone=f"path-{kind_of(cell).lower().rstrip('#')}" if cell else "")


def _between(topology: Topology, names: list[str], groups: list[list[int]]) -> list[list[str]]:
    def between(group: list[int], other: list[int]) -> str:
        if group is not other:
            return topology.matrix[group[0]][other[0]] or GAP
        return topology.matrix[group[0]][group[1]] or GAP if len(group) > 1 else "X"

    return [[name, *(between(group, other) for other in groups)] for name, group in zip(names, groups, strict=True)]


def like_gpus(topology: Topology) -> list[list[int]]:
    """Return positions of GPUs that have the same class to every other GPU."""
    groups: list[list[int]] = []
    for i, row in enumerate(topology.matrix):
        for group in groups:
            first = group[0]
            other = topology.matrix[first]
            same = all(a == b for k, (a, b) in enumerate(zip(row, other, strict=True)) if k not in (i, first))
            inner = len(group) == 1 or row[first] == topology.matrix[group[1]][first]
            if same and inner:
                group.append(i)
                break
        else:
            groups.append([i])
    return groups


def _cells(topology: Topology) -> tuple[list[str], list[list[str]]]:
    affinities = _affinities(topology.gpus)
    nics = [nic.label for nic in topology.nics]
    header = ["", *(f"GPU{gpu.index}" for gpu in topology.gpus), *nics, *affinities]
    rows = [
        [
            f"GPU{gpu.index}",
            *(cell or GAP for cell in topology.matrix[i]),
            *(nic.classes[i] or GAP for nic in topology.nics),
            *(values[i] for values in affinities.values()),
        ]
        for i, gpu in enumerate(topology.gpus)
    ]
    blank = [""] * len(affinities)
    rows += [
        [label, *(cls or GAP for cls in nic.classes), *(cls or GAP for cls in nic.peers), *blank]
        for label, nic in zip(nics, topology.nics, strict=True)
        if nic.peers
    ]
    return header, rows


def _affinities(gpus: tuple[TopologyGpu, ...]) -> dict[str, list[str]]:
    columns = {
        "CPU Affinity": [gpu.cpu_affinity or MISSING for gpu in gpus],
        "NUMA Affinity": [gpu.numa_affinity or MISSING for gpu in gpus],
        "GPU NUMA ID": [gpu.gpu_numa_id or GAP for gpu in gpus],
    }
    # The columns are positional for a reader, so one that holds nothing may only be left out from the right.
    while columns and all(value in (MISSING, GAP) for value in list(columns.values())[-1]):
        if "GPU NUMA ID" in columns and any(gpu.gpu_numa_id for gpu in gpus):
            break
        columns.popitem()
    return columns


def _shortened(text: str) -> str:
    label = f"GPU{text}"
    return label if len(label) <= LABEL_WIDTH else f"{label[: LABEL_WIDTH - 3]}..."


def _identities(topology: Topology, width: int | None) -> Iterator[Block]:
    """On a terminal, many GPUs of one model are one line: their bus ids are in the JSON."""
    named, found = [gpu for gpu in topology.gpus if gpu.name or gpu.pci_bus_id], faults(topology.findings)
    rows: list[Row] = []
    if width is not None and len(named) > MANY_GPUS and len({gpu.name for gpu in named}) == 1:
        rows.append([f"{len(named)} x {named[0].name or 'unnamed GPU'}", ""])
        named = [gpu for gpu in named if gpu.pci_bus_id in found]
    rows += [[_identity(gpu), _fault(found.get(gpu.pci_bus_id or ""))] for gpu in named]
    rows += [[f"{gpu.name}: {gpu.bus_id}", _fault(gpu.fault)] for gpu in absent(topology, topology.findings)]
    if topology.gpus and rows:
        yield Table(words("", ""), rows)


def _identity(gpu: TopologyGpu) -> str:
    """As nvidia-smi -L writes it, with the bus id after it."""
    unnamed = f"compute capability {gpu.compute_capability}" if gpu.compute_capability else "unnamed"
    uuid = f" (UUID: {gpu.uuid})" if gpu.uuid else ""
    return f"GPU {gpu.index}: {gpu.name or unnamed}{uuid}" + (f" {gpu.pci_bus_id}" if gpu.pci_bus_id else "")


def _fault(fault: FaultMark | None) -> Cell:
    return Cell(fault.words, tone=fault.verdict.value) if fault else Cell("")


def _legends(topology: Topology) -> Iterator[Block]:
    nics = (cls for nic in topology.nics for cls in (*nic.classes, *nic.peers))
    used = set(map(kind_of, {*(cls for row in topology.matrix for cls in row), *nics}))
    if topology.gpus:
        lines = [Cell(f"{cls:<4} = {MEANING[cls]}", tone=_path(cls).tone) for cls in MEANING if cls in used]
        yield Lines([f"{'X':<4} = Self", *lines], "Legend")
    named = [nic for nic in topology.nics if nic.name and nic.name != nic.label]
    if named:
        yield Lines([f"{nic.label}: {nic.name}" for nic in named], "NIC Legend")


def _network_cards(topology: Topology) -> Iterator[Table]:
    if any(nic.role for nic in topology.nics):
        columns = [
            *words("device", "bus id", "use"), *numbers("GPU", "port"), *words("state"), *numbers("Gb/s"),
            *words("link", "reason"),
        ]  # fmt: skip
        yield Table(columns, [row for nic in topology.nics for row in _ports(nic)], "Network cards")


def _ports(nic: Nic) -> Iterator[Row]:
    """A row for each port, or one for a card of which none was read. The rate of a port that is down means nothing."""
    own = [nic.name or nic.label, nic.pci_bus_id or MISSING, nic.role or "unknown", ", ".join(map(str, nic.gpus))]
    for port in nic.ports:
        rate = f"{port.rate_gbit_s:g}" if port.is_active and port.rate_gbit_s is not None else ""
        yield [*own, str(port.number), port.state or "unknown", rate, port.link_layer or "unknown", nic.reason]
    if not nic.ports:
        yield [*own, "", "unknown", "", "unknown", nic.reason or "no RDMA device"]


def _expectations(topology: Topology) -> Iterator[Block]:
    groups: dict[tuple[str, str], list[str]] = {}
    for pair in topology.pairs:
        if pair.expected is not None:
            e = pair.expected
            rate = f"{e.unidirectional_gb_s:g} GB/s (low {e.low_gb_s:g}, line rate {e.high_gb_s:g})"
            groups.setdefault((pair.cls or GAP, f"{rate}: {e.basis}"), []).append(f"{pair.a}-{pair.b}")
    if not groups:
        return

    def nearest_first(key: tuple[str, str]) -> tuple[int, int, str]:
        cls, told = key
        return list(MEANING).index(kind_of(cls)), -int(cls[2:]) if cls.startswith("NV") else 0, told

    lines: list[Cell | str] = []
    for cls, told in sorted(groups, key=nearest_first):
        pairs = groups[cls, told]
        more = f" and {len(pairs) - NAMED_PAIRS} more" if len(pairs) > NAMED_PAIRS else ""
        lines.append(f"{cls:<5} {told}")
        lines.append(f"      {plural(len(pairs), 'pair')}: {', '.join(pairs[:NAMED_PAIRS])}{more}")
    title = "Expected unidirectional bandwidth of GPU pairs, 10^9 bytes/s"
    yield Lines([*lines, *_reduced(topology.pairs)], title)


def _reduced(pairs: tuple[Pair, ...]) -> Iterator[Cell]:
    links = dict.fromkeys(bus_id for pair in pairs for bus_id in pair.reduced)
    if links:
        count = sum(bool(pair.reduced) for pair in pairs)
        named = ", ".join(list(links)[:NAMED_LINKS]) + (", ..." if len(links) > NAMED_LINKS else "")
        yield Cell(f"reduced {plural(count, 'pair')} cross a link that runs below that now: {named}", tone="off")


def _advice(advice: Advice | None, best: bool) -> Iterator[Block]:
    """What the matrix does not show by itself: asymmetries always, choices when they were asked for."""
    if advice is None:
        return
    choices = advice.best if best else ()
    lines: list[Cell | str] = []
    for choice in choices:
        rate = f", {choice.slowest_gb_s:g} GB/s" if choice.slowest_gb_s is not None else ""
        equals = f" (one of {choice.equals} equally good sets)" if choice.equals > 1 else ""
        slowest = f": slowest pair {choice.slowest}{rate}" if choice.slowest else ""
        lines += [
            f"{choice.size} GPUs: {', '.join(map(str, choice.gpus))}{slowest}{equals}",
            Cell(choice.environment, command=True),
        ]
    # One line for the GPUs that want the same command.
    commands: dict[str, list[int]] = {}
    for pinning in advice.pinning:
        if any(pinning.gpu in choice.gpus for choice in choices):
            commands.setdefault(pinning.command, []).append(pinning.gpu)
    lines += [f"start the process of GPU {', '.join(map(str, gpus))} with: {one}" for one, gpus in commands.items()]
    if lines or advice.asymmetries:
        yield Lines([*lines, *advice.asymmetries], "Advice")


def sections(topology: Topology, findings: Iterable[Finding], about: str) -> Iterator[Section]:
    """Yield what a page shows: the drawing and the classes. about: what is simulated."""
    notes = [plural(len(topology.nics), "network card"), f"source: {topology.source}"]
    drawn: list[Block] = []
    if topology.wiring is not None and topology.gpus:
        drawn.append(Drawing(boxes(topology, topology.wiring, findings), "Drawing of the topology"))
        drawn.append(Lines([*nvlinks(topology, topology.wiring)], "NVLink"))
        if not topology.wiring.told:
            notes.append("boxes worked out from the path classes: switches by PIX, nodes by NUMA affinity")
    mark = [f"SIMULATED {about}".rstrip()] if topology.simulated else []
    yield Section("topology", "Topology", [*drawn, *_paths(topology)], lines=[*mark, "; ".join(notes)])


def _paths(topology: Topology) -> Iterator[Block]:
    """The matrix of path classes with what they mean. Of many GPUs, those with equal paths share a row."""
    count = len(topology.gpus)
    if count < 2:
        return
    used = set(map(kind_of, {cell for row in topology.matrix for cell in row}))
    groups = like_gpus(topology) if count > MANY_GPUS else [[i] for i in range(count)]
    names = [f"GPU{ranges([topology.gpus[i].index for i in group])}" for group in groups]
    about = "; ".join(f"{kind}: {meaning}" for kind, meaning in MEANING.items() if kind in used)
    if len(groups) < count:
        about = f"GPUs with equal paths share a row; a cell at its own column is the path between them. {about}"
    yield _classes(["", *names], _between(topology, names, groups), len(names) + 1, "Path between GPUs", about)


# More processes of one GPU than this are counted.
PROCESSES = 3
# For these findings of the check throttle the temperature is marked.
HEAT = ("gpu.hardware-thermal-slowdown", "gpu.software-thermal-slowdown")
TITLES = (
    "temperature", "power", "SM clock", "memory used", "memory errors", "PCIe lanes", "NVLinks up", "processes",
)  # fmt: skip
BAD = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN)


def gpu_section(topology: Topology, findings: Iterable[Finding], kept: Mapping[str, Gpu]) -> Section:
    """Return a row for each GPU. kept: what is known of the state of each, by bus id."""
    findings, one_model = tuple(findings), len({gpu.name for gpu in topology.gpus}) == 1
    kept = {bus_id: one for bus_id, one in kept.items() if bus_id in {gpu.pci_bus_id for gpu in topology.gpus}}
    rows: list[tuple[int | None, Row]] = []
    for gpu in topology.gpus:
        bus_id = gpu.pci_bus_id or ""
        bad = [f for f in findings if f.verdict in BAD and bus_id in bus_ids(f.subject)]
        one, worst_of = kept.get(bus_id), min((f.verdict for f in bad), key=BAD.index, default=None)
        name = ", ".join(filter(None, ("" if one_model else gpu.name or "unnamed GPU", bus_id)))
        first = Cell(str(gpu.index), name, "", worst_of, bus_id)
        uuid = Cell(gpu.uuid or "\u2013", (one.health.serial if one else None) or "")
        place = ["" if gpu.numa_node is None else str(gpu.numa_node), gpu.cpu_affinity or ""]
        rows.append((gpu.index, [first, uuid, *(_state(one, bad) if one else [] if kept else place)]))
    for lost in absent(topology, findings):
        index = "\u2013" if lost.number is None else str(lost.number)
        why = Cell(f"not usable: {lost.fault.cause}", tone=lost.fault.verdict.value)
        rows.append((lost.number, [Cell(index, lost.bus_id, "", lost.fault.verdict, lost.bus_id), why]))
    rows.sort(key=lambda row: len(rows) if row[0] is None else row[0])
    columns = [*words("GPU"), Column("UUID, serial", kind="mono uuid")]
    columns += numbers(*TITLES) if kept else words("NUMA node", "CPUs")
    about = [heading(topology, findings)] if one_model else []
    about += ["state at the time of the report"] if kept else []
    return Section("gpus", "GPUs", [Table(columns, [row for _, row in rows], kind="gpus")], "; ".join(about))


def _state(one: Gpu, bad: Sequence[Finding]) -> Iterator[Cell]:
    """The state of a GPU, by TITLES. bad: findings about it, which color the cells that they evaluate."""
    of_check = {f.check: f.verdict for f in sorted(bad, key=lambda f: -BAD.index(f.verdict))}

    def tone(*checks: str) -> str:
        found = [of_check[check] for check in checks if check in of_check]
        return min(found, key=BAD.index).value if found else ""

    hot, health = any(f.code in HEAT for f in bad), one.health
    slowdown = "" if health.temperature_slowdown_c is None else f"slowdown at {health.temperature_slowdown_c}"
    yield Cell(_unit(health.temperature_c, "\u00b0C"), slowdown, tone("throttle") if hot else "")
    yield Cell(_unit(health.power_w, "W"), _of(health.power_limit_w, "W"), tone("power-limit"))
    yield Cell(_unit(health.sm_clock_mhz, "MHz"), _of(health.max_sm_clock_mhz, "MHz"), tone("throttle", "clock-limit"))
    yield Cell(_unit(health.memory_used_mib, "MiB"), _of(one.memory_mib, "MiB"))
    ecc = "no ECC" if health.ecc is None else "ECC on" if health.ecc else "ECC off"
    yield Cell(memory_errors(one) or "\u2013", ecc, tone("memory-errors"))
    now, most = one.pcie.width, (one.pcie.max_generation, one.pcie.max_width)
    could = f"of Gen{most[0] or '?'} x{most[1] or '?'}" if any(most) else ""
    yield Cell(f"x{now}" if now else "\u2013", could, tone("pcie-link", "p2p-bandwidth"))
    up = f"{one.active_nvlinks} of {len(one.nvlinks)}" if one.nvlinks else "\u2013"
    yield Cell(up, "", tone("nvlink", "nvlink-links", "nvlink-errors"))
    yield Cell(*_processes(health.processes), tone("processes"))


def _processes(found: Sequence[GpuProcess] | None) -> tuple[str, str]:
    if not found:
        return ("\u2013" if found is None else "0"), ""
    names = [f"{process.name or 'unknown'} ({process.pid})" for process in found[:PROCESSES]]
    more = [plural(len(found) - PROCESSES, "more process").replace("processs", "processes")]
    return str(len(found)), ", ".join(names + (more if len(found) > PROCESSES else []))


def _unit(value: float | None, unit: str) -> str:
    return "\u2013" if value is None else f"{number(round(value, 1))} {unit}"


def _of(value: float | None, unit: str) -> str:
    return "" if value is None else f"of {number(round(value, 1))} {unit}"


def memory_errors(one: Gpu | None) -> str:
    if one is None:
        return ""
    ecc = one.health.ecc_counts
    counts = [n for n in (ecc.volatile_uncorrected, ecc.aggregate_uncorrected) if n is not None]
    parts = [f"{max(counts)} uncorrectable"] if counts else []
    remap, retired = one.health.row_remap, one.health.retired_pages
    if remap is not None:
        parts += ["remapping failed"] if remap.failed else ["remapping pending"] if remap.pending else []
    if retired is not None and retired.pending:
        parts.append("page retirement pending")
    return ", ".join(parts)
