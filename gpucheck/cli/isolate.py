"""Find the nodes that make a large job slow or hang"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpucheck.cli._shared.common import (
    Number,
    OutputFile,
    Problem,
    messages_option,
    nodes_option,
    output_options,
    remote_option,
    several,
    timeout_option,
    usage_errors,
)
from gpucheck.cli._shared.progress import steps
from gpucheck.cli._shared.shown import FORMATS, measured, write_report
from gpucheck.cli.bandwidth import parse_sizes
from gpucheck.model.finding import EXIT_STATUS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpucheck.model.isolation import IsolationReport

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@nodes_option
@click.option("--inventory", type=FILE, help="Ansible inventory: the connection of NODES, or of its group gpu.")
@click.option("--switches", type=FILE, help="Switch of each node: CSV (host,switch), also of fleet history.")
@click.option(
    "--expected",
    type=Number(min=0, min_open=True),
    metavar="GB/S",
    help="Bus bandwidth of a healthy all_reduce. With it, all nodes together are tested.",
)
@several("--nics", "NIC,...", "Test each of these NICs alone too.")
@click.option(
    "--repeat",
    type=click.IntRange(1, 16),
    default=1,
    show_default=True,
    metavar="N",
    help="Give each node N first tests, with other nodes each time: for nodes that are slow at times.",
)
@messages_option
@timeout_option("one test after its ranks started", 60.0)
@remote_option
@click.option("--state", type=OutputFile(), metavar="FILE", help="Write each result to FILE, and continue from it.")
@click.option("--simulate-fleet", "simulated", metavar="SPEC", help="Search a simulated fleet: nodes=1024,bad=20.")
@output_options(*FORMATS)
def COMMAND(  # noqa: N802 - the name the command walk looks for
    nodes: tuple[str, ...],
    inventory: Path | None,
    switches: Path | None,
    expected: float | None,
    nics: tuple[str, ...],
    repeat: int,
    sizes: str,
    timeout: float,
    remote: str,
    state: Path | None,
    simulated: str | None,
    format_: str,
    output: Path | None,
) -> int:
    """Find the nodes that make a large job slow or hang.

    Runs all_reduce on pairs of nodes at the same time, compares them, and tests suspects with nodes that are good. A
    node is named after bad tests with two different nodes; with --expected, all nodes together are tested first.
    """
    from gpucheck.fleet.row import lemons, read_labels
    from gpucheck.isolate.launch import Launcher, SearchProblem
    from gpucheck.isolate.run import SearchOptions, Watch, isolate, launcher_of
    from gpucheck.isolate.search import Limits
    from gpucheck.isolate.simulated import SimulatedFleet, parse_spec
    from gpucheck.render.subjects.isolation import document

    if len(parse_sizes(sizes)) != 2:
        raise Problem(f"--sizes {sizes}: expected two sizes, a small and a large one, such as 8K,128M.")
    with usage_errors(ValueError):
        fleet = None if simulated is None else SimulatedFleet(parse_spec(simulated))
        if fleet is not None and (nodes or inventory or switches or nics):
            raise Problem("--simulate-fleet draws its own nodes, switches and NICs.")
        of_switch = fleet.switch_of if fleet else {}
        labels = read_labels(switches) if switches is not None else {}
        of_switch = of_switch or {name: more["switch"] for name, more in labels.items() if more.get("switch")}
        test: dict[str, Any] = {"seconds": timeout, "gpucheck": remote, "sizes": sizes, "nics": tuple(nics)}
        launcher = Launcher({}, slurm=False, **test) if fleet else launcher_of(nodes, inventory, os.environ, **test)
        options = SearchOptions(
            launcher=launcher,
            limits=Limits(expected, repeat=repeat),
            switch_of=of_switch,
            lemons=lemons(labels),
            state=state,
        )

    def search(keep: "Callable[[IsolationReport], None]") -> "IsolationReport":
        with steps(0) as progress:
            return isolate(options, fleet, Watch(progress, progress.update, keep))

    with usage_errors(SearchProblem):
        report = measured(search, lambda report: write_report(report, lambda: document(report), format_, output))
    return EXIT_STATUS[report.verdict]
