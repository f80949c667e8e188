"""Start a job on those of its nodes that pass quick checks"""

import os
from pathlib import Path

import click

from gpucheck.cli._shared.common import (
    DIRECTORY,
    FILE,
    Problem,
    become,
    messages_option,
    nodes_option,
    note,
    remote_option,
    seconds,
    usage_errors,
)
from gpucheck.cli._shared.progress import steps
from gpucheck.model.finding import EXIT_STATUS, Verdict


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--spare", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="Nodes that may be left out."
)
@nodes_option
@click.option("--inventory", type=FILE, help="Ansible inventory: as isolate.")
@click.option("--history", type=FILE, help="CSV of fleet history: its lemons are the first to be left out as spare.")
@click.option("--within", type=seconds(20.0), default=90.0, show_default=True, metavar="SECONDS", help="Time for all.")
@messages_option
@remote_option
@click.option("--lists", type=DIRECTORY, default=Path(), help="Write the lists of nodes there. Default: here.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def COMMAND(  # noqa: N802 - the name the command walk looks for
    spare: int,
    nodes: tuple[str, ...],
    inventory: Path | None,
    history: Path | None,
    within: float,
    sizes: str,
    remote: str,
    lists: Path,
    command: tuple[str, ...],
) -> int:
    """Start COMMAND on the nodes of a job that pass quick checks.

    \b
    gpucheck gate --spare 2 -- srun python train.py

    Every node runs quick checks, then pairs of nodes an all_reduce, and suspects one more with good nodes. COMMAND is
    started on all nodes but the spare ones: the variables of Slurm, MASTER_ADDR and GPUCHECK_HOSTFILE name the nodes
    that it has. passing_nodes.txt and failing_nodes.txt are written. The exit status is that of COMMAND; 2
    if too few nodes pass, and nothing was started.
    """
    from gpucheck.fleet.row import lemons, read_labels
    from gpucheck.isolate.gate import FAILING, choose, job_environment, vet
    from gpucheck.isolate.launch import AllocationEndedError
    from gpucheck.isolate.run import launcher_of

    with usage_errors(ValueError):
        bad_before = lemons(read_labels(history)) if history else ()
        launcher = launcher_of(nodes, inventory, os.environ, gpucheck=remote, sizes=sizes)
    peers = launcher.peers
    wanted = len(peers) - spare
    if wanted < 1:
        raise Problem(f"--spare {spare}: {len(peers)} nodes leave none for the job.")
    try:
        with steps(5) as progress:
            vetted = vet(launcher, within, progress)
    except AllocationEndedError:
        raise Problem("the Slurm allocation ended: nothing was started.", EXIT_STATUS[Verdict.UNKNOWN]) from None
    chosen = choose(vetted.good, wanted, bad_before)
    try:
        environment = job_environment(os.environ, vetted, chosen if len(chosen) == wanted else (), lists)
    except OSError as error:
        raise Problem(
            f"{lists}: cannot be written: {error.strerror}. Choose another directory with --lists."
        ) from error
    for name, why in vetted.bad.items():
        note(f"gpucheck: {name}: {why}")
    if environment:
        note(f"gpucheck: {wanted} of {len(peers)} nodes in {vetted.seconds:.0f} s: {','.join(chosen)}")
        become(command, environment)
    note(
        f"gpucheck: {len(vetted.good)} of {len(peers)} nodes pass, and the job needs {wanted}: not started. The "
        f"reasons are in {lists / FAILING}. Give more nodes and a larger --spare."
    )
    return EXIT_STATUS[Verdict.FAIL]
