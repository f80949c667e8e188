"""Test NCCL or Gloo collectives on one or more hosts"""

import os
from typing import Any

import click

from gpucheck.cli._shared.common import (
    Problem,
    fail_on_option,
    output_options,
    simulation_options,
    timeout_option,
    usage_errors,
)
from gpucheck.cli._shared.progress import Progress
from gpucheck.cli._shared.shown import FORMATS, reported
from gpucheck.cli.bandwidth import parse_sizes

MOST_RANKS = 1024  # on one host: each is a process


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Run only this collective (all_reduce). Repeatable.")
@click.option("--sizes", metavar="LIST", help="Message sizes such as 8K,128M. Default: one small and one large.")
@click.option(
    "--ranks",
    type=click.IntRange(1, MOST_RANKS),
    metavar="N",
    help="Ranks on this host. Default: one per GPU, or 2 without a GPU.",
)
@click.option("--devices", metavar="0,1|UUIDs", help="Use only these GPUs.")
@click.option("--allow-busy-gpus", is_flag=True, help="Run on GPUs that other processes use.")
@timeout_option("one round of a collective", 60.0)
@fail_on_option
@output_options(*FORMATS)
@simulation_options
def COMMAND(  # noqa: N802 - the name the command walk looks for
    only: tuple[str, ...],
    sizes: str | None,
    ranks: int | None,
    devices: str | None,
    allow_busy_gpus: bool,
    timeout: float,
    **shown: Any,
) -> int:
    """Run collectives between GPUs or CPU ranks and check every result.

    all_reduce, all_gather, reduce_scatter, broadcast, all_to_all and send/recv run with NCCL between GPUs and with Gloo
    between CPU ranks. Several hosts: start it on each with torchrun, or with its variables GROUP_WORLD_SIZE,
    GROUP_RANK, MASTER_ADDR and MASTER_PORT. Each host prints the same numbers.
    """
    from gpucheck.measure.collectives.rank import ALL
    from gpucheck.measure.collectives.run import CollectiveOptions
    from gpucheck.processes.ranks.nodes import nodes_from
    from gpucheck.render.subjects.collectives import document
    from gpucheck.run.links import collectives

    for name in only:
        if name not in ALL:
            raise Problem(f"--only {name}: unknown collective. Available: {', '.join(ALL)}.")
    with usage_errors(ValueError):
        nodes = nodes_from(os.environ)
    if ranks == 1 and (nodes is None or nodes.count == 1):
        raise Problem("--ranks 1: a collective needs at least two ranks. Add ranks, or hosts.")
    options = CollectiveOptions(
        operations=only or tuple(ALL),
        sizes=parse_sizes(sizes),
        ranks=ranks,
        devices=devices,
        timeout_s=timeout,
        contended=allow_busy_gpus,
        nodes=nodes,
    )
    progress = Progress(1)
    progress("collectives")
    whole = devices is None and ranks is None
    return reported(
        lambda host, _, keep: collectives(host, options, keep), document, progress, every_gpu=whole, **shown
    )
