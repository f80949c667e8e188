"""A topology as text, laid out so that `gpucheck topo --import` reads it back, and as JSON."""

from collections.abc import Iterator

import click
import msgspec

from gpucheck.model import Finding, Topology, TopologyGpu, Verdict
from gpucheck.render.words import printable, simulated_mark, verdict_word

GAP = "?"
NOT_TOLD = "N/A"
MEANING = {
    "NV#": "joined by # NVLinks",
    "PIX": "at most one PCIe switch",
    "PXB": "several PCIe switches, not the host bridge",
    "PHB": "the PCIe host bridge (the CPU)",
    "NODE": "host bridges of one NUMA node",
    "SYS": "the link between NUMA nodes or sockets",
    GAP: "not known",
}
COLOUR = {"NV#": "green", "PIX": "cyan", "PXB": "cyan", "PHB": "yellow", "NODE": "yellow", "SYS": "red", GAP: "magenta"}
NAMED_PAIRS = 6


def to_json(topology: Topology) -> str:
    """The outside contract ``gpucheck.topology/1``, indented."""
    return msgspec.json.format(msgspec.json.encode(topology), indent=2).decode()


def to_text(topology: Topology, *, about: str = "") -> str:
    """The matrix, what the pairs should reach, and the findings, with terminal colours.

    about: what is simulated (the profile and its faults). A matrix line is never wrapped or cut, however wide.
    """
    parts = [
        [simulated_mark(f"{about}: no real GPU was looked at".lstrip(": "))] if topology.simulated else [],
        [_identity(gpu) for gpu in topology.gpus if gpu.name or gpu.pci_bus_id],
        matrix(topology),
        list(_legend(topology)),
        list(_nic_legend(topology)),
        list(_expectations(topology)),
        [line for finding in topology.findings for line in _finding(finding)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def matrix(topology: Topology) -> list[str]:
    """Header and one line a GPU: classes, NIC classes, then the affinity columns that hold anything."""
    if not topology.gpus:
        return []
    affinities = _affinities(topology.gpus)
    header = ["", *(f"GPU{gpu.index}" for gpu in topology.gpus), *(nic.label for nic in topology.nics), *affinities]
    rows = [
        [
            f"GPU{gpu.index}",
            *(cell or GAP for cell in topology.matrix[i]),
            *(nic.classes[i] or GAP for nic in topology.nics),
            *(values[i] for values in affinities.values()),
        ]
        for i, gpu in enumerate(topology.gpus)
    ]
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
    classes = len(topology.gpus) + len(topology.nics)
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(header, widths, strict=True)).rstrip(),
        *("  ".join(_cell(cell, widths[i], 0 < i <= classes) for i, cell in enumerate(row)).rstrip() for row in rows),
    ]


def _cell(cell: str, width: int, is_class: bool) -> str:
    padded = cell.center(width) if cell == "X" else cell.ljust(width)
    return click.style(padded, fg=COLOUR.get(_kind(cell)), dim=cell == "X" or None) if is_class else padded


def _kind(cls: str | None) -> str:
    return GAP if cls is None else "NV#" if cls.startswith("NV") else cls


def _affinities(gpus: tuple[TopologyGpu, ...]) -> dict[str, list[str]]:
    columns = {
        "CPU Affinity": [gpu.cpu_affinity or NOT_TOLD for gpu in gpus],
        "NUMA Affinity": [gpu.numa_affinity or NOT_TOLD for gpu in gpus],
        "GPU NUMA ID": [gpu.gpu_numa_id or GAP for gpu in gpus],
    }
    # The columns are positional for a reader, so one that holds nothing may only be left out from the right.
    while columns and all(value in (NOT_TOLD, GAP) for value in list(columns.values())[-1]):
        if "GPU NUMA ID" in columns and any(gpu.gpu_numa_id for gpu in gpus):
            break
        columns.popitem()
    return columns


def _identity(gpu: TopologyGpu) -> str:
    """As nvidia-smi -L writes it, with the bus id after it."""
    uuid = f" (UUID: {gpu.uuid})" if gpu.uuid else ""
    bus_id = f" {gpu.pci_bus_id}" if gpu.pci_bus_id else ""
    return printable(f"GPU {gpu.index}: {gpu.name or 'unnamed'}{uuid}{bus_id}")


def _legend(topology: Topology) -> Iterator[str]:
    cells = [cell for row in topology.matrix for cell in row] + [cls for nic in topology.nics for cls in nic.classes]
    used = {_kind(cell) for cell in cells}
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
        yield from (f"  {nic.label}: {printable(str(nic.name))}" for nic in named)


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
    yield "Expected from one GPU to another, one direction, 10**9 bytes/s:"
    yield ""
    for (cls, words), pairs in sorted(groups.items(), key=lambda item: (_rank(item[0][0]), item[0][1])):
        more = f" and {len(pairs) - NAMED_PAIRS} more" if len(pairs) > NAMED_PAIRS else ""
        plural = "s" if len(pairs) != 1 else ""
        label = click.style(f"{cls:<5}", fg=COLOUR.get(_kind(cls)))
        yield f"  {label} {words}"
        yield f"        {len(pairs)} pair{plural}: {', '.join(pairs[:NAMED_PAIRS])}{more}"


def _rank(cls: str) -> tuple[int, int]:
    return list(MEANING).index(_kind(cls)), -int(cls[2:]) if cls.startswith("NV") else 0


def _finding(finding: Finding) -> Iterator[str]:
    """The verdict, what was seen and wanted; then why and what to do."""
    wanted = f", wanted {finding.wanted}" if finding.wanted is not None else ""
    seen = "nothing" if finding.seen is None else finding.seen
    unit = f" {finding.unit}" if finding.unit else ""
    yield f"{verdict_word(finding.verdict)}  {finding.check}  {printable(f'{finding.subject}: {seen}{wanted}{unit}')}"
    if finding.why:
        yield f"         why  {printable(finding.why)}"
    if finding.fix:
        yield f"         do   {printable(finding.fix)}"
    if finding.verdict is not Verdict.SKIP:
        yield from (f"         saw  {printable(line)}" for line in finding.evidence)
