"""Test NCCL or Gloo collectives on one or more hosts"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucheck.cli._shared.common import (
    Problem,
    measured_host,
    output_options,
    rendezvous_option,
    simulation_options,
    start_simulation,
    usage_errors,
    write_result,
)
from gpucheck.cli._shared.progress import steps
from gpucheck.cli._shared.width import columns
from gpucheck.cli.bandwidth import parse_sizes
from gpucheck.model.finding.verdict import EXIT_STATUS

if TYPE_CHECKING:
    from gpucheck.processes.ranks.nodes import Nodes


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Run only this collective (all_reduce). Repeatable.")
@click.option("--sizes", metavar="LIST", help="Message sizes such as 8K,128M. Default: one small and one large.")
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    metavar="N",
    help="Ranks on this host. Default: one per GPU, or 2 without a GPU.",
)
@click.option("--devices", metavar="0,1|UUIDs", help="Use only these GPUs.")
@click.option("--allow-busy-gpus", is_flag=True, help="Run on GPUs that other processes use.")
@click.option("--nodes", type=click.IntRange(min=2), metavar="N", help="Number of hosts. Run the command on each host.")
@click.option("--node-rank", type=click.IntRange(min=0), metavar="N", help="Number of this host, from 0.")
@rendezvous_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for all collectives after the ranks started.",
)
@output_options("text", "json")
@simulation_options
def COMMAND(  # noqa: N802 - the name the command walk looks for
    only: tuple[str, ...],
    sizes: str | None,
    ranks: int | None,
    devices: str | None,
    allow_busy_gpus: bool,
    nodes: int | None,
    node_rank: int | None,
    rdzv_endpoint: str | None,
    timeout: float,
    format_: str,
    output: Path | None,
    profile: str | None,
    faults: tuple[str, ...],
) -> int:
    """Run collectives between GPUs or CPU ranks and check every result.

    all_reduce, all_gather, reduce_scatter, broadcast, all_to_all and send/recv run with NCCL between GPUs and with Gloo
    between CPU ranks. On several hosts, start the command on each of them: gpucheck collectives --nodes 2 --node-rank 0
    --rdzv-endpoint 10.0.0.1:29500 on the first, with --node-rank 1 on the second. Each host prints the same numbers.
    """
    start_simulation(profile, faults)
    from gpucheck.measure.collectives.definitions import ALL
    from gpucheck.measure.collectives.run import Options
    from gpucheck.render import collectives as render
    from gpucheck.run.links import collectives

    for name in only:
        if name not in ALL:
            raise Problem(f"--only {name}: unknown collective. Available: {', '.join(ALL)}.")
    if ranks == 1 and nodes is None:
        raise Problem("--ranks 1: a collective needs at least two ranks. Add ranks, or hosts with --nodes.")
    place = None
    if nodes is not None or node_rank is not None or rdzv_endpoint is not None:
        place = _nodes(nodes, node_rank, rdzv_endpoint)
    options = Options(
        operations=only or tuple(ALL),
        sizes=parse_sizes(sizes),
        ranks=ranks,
        devices=devices,
        timeout_s=timeout,
        contended=allow_busy_gpus,
        nodes=place,
    )
    with measured_host() as host, steps(1) as progress:
        progress(f"collectives, at most {timeout:g} s after the ranks started")
        report = collectives(host, options)
    write_result(render.to_json(report) if format_ == "json" else render.to_text(report, width=columns(output)), output)
    return EXIT_STATUS[report.verdict]


def _nodes(nodes: int | None, node_rank: int | None, endpoint: str | None) -> "Nodes":
    from gpucheck.processes.ranks.nodes import ENDPOINT, nodes_from_options

    if nodes is None or node_rank is None or endpoint is None:
        raise Problem(
            f"several hosts require --nodes, --node-rank and {ENDPOINT}. The endpoint is the same on every host."
        )
    with usage_errors(ValueError):
        return nodes_from_options(nodes, node_rank, endpoint)
