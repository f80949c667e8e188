"""The PCIe and NVLink tree of a topology for a terminal."""

import io
from collections.abc import Iterator

from gpucheck.model import NvLinkBundle, Topology, Wiring
from gpucheck.printable import of_printable
from gpucheck.render.topology.boxes import Box, boxes, describe_switches, direct_links, heading, switch_links
from gpucheck.render.topology.text import findings_text
from gpucheck.render.words import COLOUR, plural, ranges, simulated_mark

STYLE = {"node": "bold", "root": "dim", "switch": "cyan", "gpu": "green", "nic": "blue"}
WIDE = 160


@of_printable
def to_tree(topology: Topology, *, about: str = "", width: int | None = None) -> str:
    """NUMA nodes with what hangs below them and their link speeds, then NVLinks, then the findings.

    about: what is simulated. width: the terminal's columns.
    """
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    def grow(tree: Tree, box: Box) -> None:
        line = Text(box.title, style=STYLE[box.kind])
        for words, style in _words(box):
            line.append(words, style=style)
        branch = tree.add(line)
        for inner in box.inside:
            grow(branch, inner)

    parts = [simulated_mark(f"{about}: no real GPU was read".lstrip(": "))] if topology.simulated else []
    if topology.wiring is not None and topology.gpus:
        inferred = "" if topology.wiring.told else ", worked out from the path classes"
        cards = plural(len(topology.nics), "network card")
        tree = Tree(Text(f"{heading(topology, topology.findings)}, {cards}{inferred}"), guide_style="dim")
        for box in boxes(topology, topology.findings):
            grow(tree, box)
        links = tree.add(Text("NVLink", style="bold"))
        for line in nvlink_lines(topology.wiring):
            links.add(Text(line, style="green"))
        if not topology.wiring.nvlinks:
            links.add("none between these GPUs")
        sink = io.StringIO()
        Console(file=sink, width=width or WIDE, force_terminal=True, color_system="standard").print(tree)
        parts.append("\n".join(line.rstrip() for line in sink.getvalue().rstrip().splitlines()))
    parts += filter(None, [findings_text(topology)])
    return "\n\n".join(parts) + "\n"


def _words(box: Box) -> Iterator[tuple[str, str]]:
    """What follows the title of a box, each with its style."""
    if box.name:
        yield f" {box.name}", STYLE[box.kind]
    if box.detail:
        yield f"  {box.detail}", "default"
    if box.link:
        yield f"  {box.link}", "red" if box.reduced else "default"
    if box.reduced:
        yield "  reduced", "bold red"
    if box.fault:
        yield f"  {box.fault.words}", f"bold {COLOUR[box.fault.verdict]}"


def nvlink_lines(wiring: Wiring) -> list[str]:
    """One line for the switches, one for all direct bundles of a GPU to GPUs after it."""
    lines = []
    totals = switch_links(wiring)
    for count in sorted(set(totals.values()), reverse=True):
        members = [int(label[3:]) for label, links in totals.items() if links == count]
        lines.append(f"{describe_switches(wiring)}: {count} links from each of GPU {ranges(sorted(members))}")
    by_gpu: dict[str, list[NvLinkBundle]] = {}
    for bundle in direct_links(wiring):
        by_gpu.setdefault(bundle.a, []).append(bundle)
    for label, bundles in by_gpu.items():
        lines.append(f"{label} to " + ", ".join(f"{b.b} by {b.links}" for b in bundles))
    return lines
