"""A topology as text, in a layout that `gpucheck topo --import` reads."""

from collections.abc import Iterator
from functools import lru_cache

import click

from gpucheck.model import Advice, Pair, Topology, TopologyGpu
from gpucheck.printable import of_printable
from gpucheck.render.blocks import Findings
from gpucheck.render.topology.boxes import Fault, absent, faults
from gpucheck.render.words import plural, ranges
from gpucheck.render.write.terminal import COLOR as VERDICT_COLOUR
from gpucheck.render.write.terminal import Terminal, paragraphs, simulated_mark, table

GAP = "?"
MISSING = "N/A"
COLOUR = {"NV#": "green", "PIX": "cyan", "PXB": "cyan", "PHB": "yellow", "NODE": "yellow", "SYS": "red", GAP: "magenta"}
LABEL_WIDTH = 24


def kind_of(cls: str | None) -> str:
    """The class without its count of links."""
    return GAP if cls is None else "NV#" if cls.startswith("NV") else cls


def matrix(topology: Topology, width: int | None = None) -> list[str]:
    """Header, one line a GPU and network card: classes, then the affinity columns that hold anything.

    width: columns of the terminal; None for no limit, and what `gpucheck topo --import` reads. A matrix that does
    not fit is shown with GPUs that differ in nothing as one row, and in bands of columns where that is too wide too.
    """
    if not topology.gpus:
        return []
    header, rows = _cells(topology)
    whole = _table(header, rows, len(topology.gpus) + len(topology.nics))
    if width is None or max(len(click.unstyle(line)) for line in whole) <= width:
        return whole
    return _folded(topology, width)


def _folded(topology: Topology, width: int) -> list[str]:
    """Three tables, each with its own like GPUs joined: class to GPUs, class to network cards, affinity."""
    count, (header, rows) = len(topology.gpus), _cells(topology)
    lines = ["GPUs that differ in nothing share a row.", "A cell at its own column is the class between them.", ""]
    groups = like_gpus(topology)
    names = [_shortened(ranges([topology.gpus[i].index for i in group])) for group in groups]
    cells = [
        [name, *(between(topology, group, other) for other in groups)]
        for name, group in zip(names, groups, strict=True)
    ]
    lines += _table(["", *names], cells, len(groups), width)
    for start, end in ((count + 1, count + 1 + len(topology.nics)), (count + 1 + len(topology.nics), len(header))):
        if start == end:
            continue
        equal: dict[tuple[str, ...], list[int]] = {}
        for i, row in enumerate(rows[:count]):
            equal.setdefault(tuple(row[start:end]), []).append(topology.gpus[i].index)
        cells = [[_shortened(ranges(members)), *values] for values, members in equal.items()]
        cells += [[row[0], *row[start:end]] for row in rows[count:] if any(row[start:end])]
        lines += ["", *_table(["", *header[start:end]], cells, end - start if end < len(header) else 0, width)]
    return lines


def between(topology: Topology, group: list[int], other: list[int]) -> str:
    """Return the class between two groups of like GPUs, or inside of one."""
    if group is not other:
        return topology.matrix[group[0]][other[0]] or GAP
    return topology.matrix[group[0]][group[1]] or GAP if len(group) > 1 else "X"


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


def _table(header: list[str], rows: list[list[str]], classes: int, width: int | None = None) -> list[str]:
    """classes: how many columns after the first hold path classes, which have colors."""
    return table(header, ([row[0], *map(_colored, row[1 : classes + 1]), *row[classes + 1 :]] for row in rows), width)


@lru_cache(256)
def _colored(cell: str) -> str:
    """An X has a blank before it, which stays outside of the color."""
    colored = click.style(cell, fg=COLOUR.get(kind_of(cell)), dim=cell == "X" or None) if cell else ""
    return f" {colored}" if cell == "X" else colored


def used_kinds(topology: Topology) -> Iterator[str]:
    for row in topology.matrix:
        yield from map(kind_of, row)
    for nic in topology.nics:
        yield from map(kind_of, (*nic.classes, *nic.peers))


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
MANY_GPUS = 16
NAMED_LINKS = 4


@of_printable
def to_text(topology: Topology, *, about: str = "", width: int | None = None, best: bool = False) -> str:
    """The matrix, what the pairs should reach, the advice and the findings, with terminal colours.

    about: what is simulated (the profile and its faults). width: the terminal's columns; without, a matrix line is
    never wrapped or cut, however wide, and can be read back. best: the choices of GPUs are shown too.
    """
    return paragraphs(
        [
            [simulated_mark(f"{about}: no real GPU was read".lstrip(": "))] if topology.simulated else [],
            _identities(topology, width),
            matrix(topology, width),
            _legend(topology),
            _nic_legend(topology),
            _expectations(topology),
            _advice(topology.advice, best),
            [findings_text(topology)] if topology.findings else [],
        ]
    )


def _identity(gpu: TopologyGpu, fault: Fault | None) -> str:
    """As nvidia-smi -L writes it, with the bus id after it, and the worst that was found about the GPU."""
    unnamed = f"compute capability {gpu.compute_capability}" if gpu.compute_capability else "unnamed"
    name = gpu.name or unnamed
    uuid = f" (UUID: {gpu.uuid})" if gpu.uuid else ""
    bus_id = f" {gpu.pci_bus_id}" if gpu.pci_bus_id else ""
    return f"GPU {gpu.index}: {name}{uuid}{bus_id}{_mark(fault)}"


def _mark(fault: Fault | None) -> str:
    return "  " + click.style(fault.words, fg=VERDICT_COLOUR[fault.verdict], bold=True) if fault else ""


def findings_text(topology: Topology) -> str:
    """Return every finding with its reason and remedy; empty without findings."""
    return "\n".join(
        Terminal().findings(Findings(topology.findings, [gpu.pci_bus_id for gpu in topology.gpus if gpu.pci_bus_id]))
    )


def _identities(topology: Topology, width: int | None) -> Iterator[str]:
    """On a terminal, many GPUs of one model are one line: their bus ids are in the JSON."""
    named, found = [gpu for gpu in topology.gpus if gpu.name or gpu.pci_bus_id], faults(topology.findings)
    if width is not None and len(named) > MANY_GPUS and len({gpu.name for gpu in named}) == 1:
        yield f"{len(named)} x {named[0].name or 'unnamed GPU'}"
        named = [gpu for gpu in named if _place(gpu) in found]
    yield from (_identity(gpu, found.get(_place(gpu))) for gpu in named)
    lost = absent(topology, topology.findings) if topology.gpus else ()
    yield from (f"{gpu.name}: {gpu.bus_id}{_mark(gpu.fault)}" for gpu in lost)


def _place(gpu: TopologyGpu) -> frozenset[str]:
    return frozenset((gpu.pci_bus_id or "",))


def _legend(topology: Topology) -> Iterator[str]:
    used = set(used_kinds(topology))
    if topology.gpus:
        yield "Legend:"
        yield ""
        yield f"  {'X':<4} = Self"
        for cls, meaning in MEANING.items():
            if cls in used:
                yield f"  {click.style(f'{cls:<4}', fg=COLOUR[cls])} = {meaning}"


def _nic_legend(topology: Topology) -> Iterator[str]:
    named = [nic for nic in topology.nics if nic.name and nic.name != nic.label]
    if named:
        yield "NIC Legend:"
        yield ""
        yield from (f"  {nic.label}: {nic.name}" for nic in named)


def _expectations(topology: Topology) -> Iterator[str]:
    """One line for all pairs that should reach the same for the same reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for pair in topology.pairs:
        if pair.expected is not None:
            e = pair.expected
            rate = f"{e.unidirectional_gb_s:g} GB/s (low {e.low_gb_s:g}, line rate {e.high_gb_s:g})"
            groups.setdefault((pair.cls or GAP, f"{rate}: {e.basis}"), []).append(f"{pair.a}-{pair.b}")
    if not groups:
        return
    yield "Expected unidirectional bandwidth of GPU pairs, 10^9 bytes/s:"
    yield ""
    for (cls, words), pairs in sorted(groups.items(), key=lambda item: (_rank(item[0][0]), item[0][1])):
        more = f" and {len(pairs) - NAMED_PAIRS} more" if len(pairs) > NAMED_PAIRS else ""
        label = click.style(f"{cls:<5}", fg=COLOUR.get(kind_of(cls)))
        yield f"  {label} {words}"
        yield f"        {plural(len(pairs), 'pair')}: {', '.join(pairs[:NAMED_PAIRS])}{more}"
    yield from _reduced(topology.pairs)


def _reduced(pairs: tuple[Pair, ...]) -> Iterator[str]:
    """Which pairs will stay below that until a link is repaired."""
    links = dict.fromkeys(bus_id for pair in pairs for bus_id in pair.reduced)
    if links:
        count = sum(bool(pair.reduced) for pair in pairs)
        named = ", ".join(list(links)[:NAMED_LINKS]) + (", ..." if len(links) > NAMED_LINKS else "")
        mark = click.style("reduced", fg="red")
        yield f"  {mark} {plural(count, 'pair')} cross a link that runs below that now: {named}"


def _advice(advice: Advice | None, best: bool) -> Iterator[str]:
    """What the matrix does not show by itself: asymmetries always, choices when they were asked for."""
    if advice is None:
        return
    choices = advice.best if best else ()
    if advice.asymmetries or choices:
        yield "Advice:"
        yield ""
    for choice in choices:
        rate = f", {choice.slowest_gb_s:g} GB/s" if choice.slowest_gb_s is not None else ""
        equals = f" (one of {choice.equals} equally good sets)" if choice.equals > 1 else ""
        worst = f": slowest pair {choice.slowest}{rate}" if choice.slowest else ""
        yield f"  {choice.size} GPUs: {', '.join(map(str, choice.gpus))}{worst}{equals}"
        yield f"        {choice.environment}"
    if choices:
        yield from _pinning(advice, {gpu for choice in choices for gpu in choice.gpus})
    yield from (f"  {sentence}" for sentence in advice.asymmetries)


def _pinning(advice: Advice, gpus: set[int]) -> Iterator[str]:
    """One line for the GPUs that want the same command."""
    commands: dict[str, list[int]] = {}
    for pinning in advice.pinning:
        if pinning.gpu in gpus:
            commands.setdefault(pinning.command, []).append(pinning.gpu)
    for command, members in commands.items():
        yield f"  start the process of GPU {', '.join(map(str, members))} with: {command}"


def _rank(cls: str) -> tuple[int, int]:
    return list(MEANING).index(kind_of(cls)), -int(cls[2:]) if cls.startswith("NV") else 0
