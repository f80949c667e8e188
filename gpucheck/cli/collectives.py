"""Measure and check collectives: NCCL between GPUs, gloo between CPU ranks, on one host or several."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucheck.cli._common import (
    EXIT_NOTHING,
    Problem,
    note,
    output_options,
    simulation_options,
    start_simulation,
    write_result,
)
from gpucheck.cli._rendezvous import rendezvous_option
from gpucheck.cli.bandwidth import parse_sizes
from gpucheck.model.verdict import EXIT_STATUS

if TYPE_CHECKING:
    from gpucheck.processes.ranks.nodes import Nodes


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Run only these: all_reduce, all_gather, ... Repeatable.")
@click.option("--sizes", metavar="LIST", help="Sizes such as 8K,128M; by default a small and a large one.")
@click.option("--ranks", type=click.IntRange(min=1), help="Ranks on this host; by default every GPU, two without one.")
@click.option("--devices", metavar="0,1|UUIDs", help="Only these GPUs.")
@click.option("--contended", is_flag=True, help="Run although other processes use the GPUs.")
@click.option("--nodes", type=click.IntRange(min=2), help="Hosts that take part; run the command on each of them.")
@click.option("--node-rank", type=click.IntRange(min=0), help="This host's number among them, from 0.")
@rendezvous_option("--master")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    help="Seconds for all collectives, after the ranks have started.",
)
@output_options("text", "json")
@simulation_options
def COMMAND(  # noqa: N802 - the name the command walk looks for
    only: tuple[str, ...],
    sizes: str | None,
    ranks: int | None,
    devices: str | None,
    contended: bool,
    nodes: int | None,
    node_rank: int | None,
    rdzv_endpoint: str | None,
    timeout: float,
    format_: str,
    output: Path | None,
    profile: str | None,
    faults: tuple[str, ...],
) -> int:
    """Run all_reduce, all_gather, reduce_scatter, broadcast, all_to_all and send/recv, each result checked exactly.

    On several hosts start it on each: gpucheck collectives --nodes 2 --node-rank 0 --rdzv-endpoint 10.0.0.1:29500, and
    with --node-rank 1 on the other. Every host prints the same numbers.
    """
    start_simulation(profile, faults)
    from gpucheck.host import live_host
    from gpucheck.measure.collectives.definitions import ALL
    from gpucheck.measure.collectives.run import Options
    from gpucheck.measure.planning.selection import Unmeasurable
    from gpucheck.render import collectives as render
    from gpucheck.run.links import collectives

    for name in only:
        if name not in ALL:
            raise Problem(f"--only {name}: no collective is called so. There are: {', '.join(ALL)}.")
    if ranks == 1 and nodes is None:
        raise Problem("--ranks 1: a collective needs two ranks or more, on this host or with --nodes on several.")
    place = None
    if nodes is not None or node_rank is not None or rdzv_endpoint is not None:
        place = _nodes(nodes, node_rank, rdzv_endpoint)
    options = Options(
        operations=only or tuple(ALL),
        sizes=parse_sizes(sizes),
        ranks=ranks,
        devices=devices,
        timeout_s=timeout,
        contended=contended,
        nodes=place,
    )
    if sys.stderr.isatty():
        note(f"gpucheck: collectives, {timeout:g} s at most once the ranks have started ...")
    try:
        report = collectives(live_host(isolated=True, deadline_s=20.0), options)
    except Unmeasurable as error:
        raise (Problem(str(error)) if error.usage else Problem(str(error), EXIT_NOTHING)) from error
    text = render.to_json(report) if format_ == "json" else render.to_text(report)
    write_result(text if output is None else click.unstyle(text), output)
    return EXIT_STATUS[report.verdict]


def _nodes(nodes: int | None, node_rank: int | None, endpoint: str | None) -> "Nodes":
    from gpucheck.processes.ranks.nodes import ENDPOINT, nodes_from_options

    if nodes is None or node_rank is None or endpoint is None:
        raise Problem(
            f"several hosts need --nodes, --node-rank and {ENDPOINT} together, the same endpoint on all of them."
        )
    try:
        return nodes_from_options(nodes, node_rank, endpoint)
    except ValueError as error:
        raise Problem(str(error)) from error
