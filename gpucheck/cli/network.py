"""Test the bandwidth and latency of every network card"""

from typing import Any, Literal

import click

from gpucheck.cli._shared.common import fail_on_option, output_options, several, simulation_options
from gpucheck.cli._shared.progress import Progress
from gpucheck.cli._shared.shown import FORMATS, reported

MOST_SECONDS = 3600


@click.command()
@several(
    "--nics",
    "mlx5_0,0000:58:00.0",
    "Use only these RDMA devices or bus ids. Default: those of the GPUs, else all with an active port.",
)
@click.option(
    "--gpu-memory", type=click.Choice(["auto", "yes", "no"]), default="auto", show_default=True,
    help="Also test with the memory of a GPU. auto: where a GPU is below the switch of a card.",
)  # fmt: skip
@click.option("--pairs", is_flag=True, help="Also test every pair of cards.")
@click.option("--nccl", is_flag=True, help="Also run an all_reduce of two GPUs through each card alone. Needs torch.")
@click.option(
    "--seconds", type=click.IntRange(1, MOST_SECONDS), default=1, show_default=True, metavar="N",
    help="Duration of each bandwidth test.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Test cards that other processes use.")
@fail_on_option
@output_options(*FORMATS)
@simulation_options
def COMMAND(  # noqa: N802 - the name the command walk looks for
    nics: tuple[str, ...],
    gpu_memory: Literal["auto", "yes", "no"],
    pairs: bool,
    nccl: bool,
    seconds: int,
    force: bool,
    **shown: Any,
) -> int:
    """Run perftest within each network card, between pairs, and on all cards at once.

    Each result is compared with the least of port rate, PCIe path and GPU link; what is low is measured again alone.
    Counters of the ports are read meanwhile. It needs the package perftest, and no root.
    Without network cards: --simulate hgx-h100-x8.
    """
    from gpucheck.measure.network import NetworkOptions
    from gpucheck.render.subjects.network import document
    from gpucheck.run.steps.network import network

    options = NetworkOptions(nics=nics, gpu_memory=gpu_memory, pairs=pairs, nccl=nccl, contended=force, seconds=seconds)
    return reported(lambda host, progress, keep: network(host, options, progress, keep), document, Progress(1), **shown)
