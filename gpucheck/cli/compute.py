"""Test the rates, results and clocks of every GPU"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpucheck.cli._shared.common import (
    Number,
    Problem,
    fail_on_option,
    level_option,
    note,
    output_options,
    simulation_options,
)
from gpucheck.cli._shared.progress import Progress
from gpucheck.cli._shared.shown import FORMATS, reported
from gpucheck.model.finding import EXIT_NOT_WRITTEN
from gpucheck.processes.atomic import write_atomic

if TYPE_CHECKING:
    from gpucheck.model.compute import ComputeReport
    from gpucheck.model.facts import Source


STATE = Path("gpucheck-burn-in.json")
STATE_OF_ROOT = Path("/var/lib/gpucheck")


@click.command()
@level_option(". standard: less than a minute of load. burn-in: rounds of cold and hot load.", "standard", "burn-in")
@click.option("--duration", metavar="10m..48h", help="Duration of a burn-in (default: 1h).")
@click.option(
    "--state",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"Write the report of a burn-in to FILE after each round (default: {STATE}, for root in {STATE_OF_ROOT}).",
)
@click.option(
    "--max-temperature",
    type=Number(min=30, max=120),
    metavar="C",
    help="Stop a burn-in when a GPU reaches this temperature (default: 2 degrees below its shutdown temperature, or "
    "its slowdown T.Limit).",
)
@click.option("--devices", metavar="0,1|UUIDs|cpu,cpu", help="Use only these GPUs, or CPU processes.")
@click.option("--allow-busy-gpus", is_flag=True, help="Compute on GPUs in use. A low rate is then at most WARN.")
@fail_on_option
@output_options(*FORMATS)
@click.option("-v", "--verbose", is_flag=True, help="Show the method and all evidence.")
@simulation_options
def COMMAND(  # noqa: N802 - the name the command walk looks for
    level: str,
    duration: str | None,
    state: Path | None,
    max_temperature: float | None,
    devices: str | None,
    allow_busy_gpus: bool,
    **shown: Any,
) -> int:
    """Compute on all GPUs at the same time and compare them with their ceilings and with each other.

    Matrix products in every type that a GPU has, memory read, write and copy; operations on equal data, whose results
    must be equal on every repeat and on every GPU of one model; and what holds the clocks under load. A GPU that looks
    slow is measured again alone. Level burn-in repeats this for minutes to days. PyTorch computes; without it, cuBLAS
    computes matrix products and moves memory.
    Without a GPU: --simulate hgx-h100-x8, or --devices cpu,cpu.
    """
    if level != "burn-in" and (duration, state, max_temperature) != (None, None, None):
        raise Problem("--duration, --state and --max-temperature require --level burn-in.")
    from gpucheck.compute.measure import BurnInOptions, ComputeOptions, span
    from gpucheck.compute.measure import duration as seconds_of
    from gpucheck.measure.values import Watch
    from gpucheck.render.formats import to_json
    from gpucheck.render.subjects.compute import document
    from gpucheck.run.steps.compute import burn_in, compute

    try:
        seconds = seconds_of(duration or "1h")
    except ValueError as error:
        raise Problem(f"--duration: {error}.") from error
    # Root's is where no other user may write, whatever the current directory is.
    file = state or (STATE_OF_ROOT / STATE if os.geteuid() == 0 else STATE)
    options = ComputeOptions(devices=devices, contended=allow_busy_gpus)
    burnt = BurnInOptions(seconds=seconds, state=file, options=options, max_temperature_c=max_temperature)

    def store(report: "ComputeReport") -> None:
        write_atomic(file, to_json(report).encode())

    def measure(host: "Source", steps: Progress, keep: "Callable[[ComputeReport], None]") -> "ComputeReport":
        if level != "burn-in":
            return compute(host, options, Watch(steps, keep=keep))
        try:
            return burn_in(host, burnt, Watch(steps, steps.note, keep=keep), store)
        except OSError as error:
            if error.filename is None and error.errno is None:
                raise
            text = f"{file}: not writable: {error.strerror}. Free space, or name a file elsewhere with --state FILE."
            raise Problem(text, EXIT_NOT_WRITTEN) from error

    if level == "burn-in":
        if os.path.lexists(file):
            raise Problem(f"{file}: exists. A burn-in overwrites no file: remove it, or name another with --state.")
        note(f"gpucheck: burn-in of {span(seconds)}, kept in {file}; Ctrl-C ends it with what is proven so far")
    return reported(measure, document, Progress(0, "step"), every_gpu=devices is None, **shown)
