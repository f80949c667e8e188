"""The level burn-in of ``gpucheck compute``: its time, its file, its progress."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gpucheck.cli._shared.common import Problem, measured_host, note, usage_errors
from gpucheck.cli.bandwidth.progress import bar
from gpucheck.model.finding.verdict import EXIT_NOT_WRITTEN

if TYPE_CHECKING:
    from gpucheck.compute.measure import Options
    from gpucheck.model.compute import ComputeReport

STATE = Path("gpucheck-burn-in.json")
STATE_OF_ROOT = Path("/var/lib/gpucheck")


def seconds_of(text: str) -> int:
    """Return the seconds of --duration. Raises Problem."""
    from gpucheck.compute.burnin.plan import duration

    try:
        return duration(text)
    except ValueError as error:
        raise Problem(f"--duration: {error}.") from error


def default_state() -> Path:
    """Return the file of a burn-in: root's is where no other user may write, whatever the current directory is."""
    return STATE_OF_ROOT / STATE if os.geteuid() == 0 else STATE


def burnt_in(
    options: "Options",
    seconds: int,
    state: Path,
    max_temperature: float | None,
    interrupted: "Callable[[ComputeReport], None]",
) -> "ComputeReport":
    """Run the burn-in, or the rest of it. Raises Problem. interrupted: gets the report if a signal ends it."""
    from gpucheck.compute.burnin.measure import BurnInOptions
    from gpucheck.compute.burnin.plan import span
    from gpucheck.compute.burnin.run import Shown
    from gpucheck.compute.burnin.state import StateError
    from gpucheck.run.steps.compute import burn_in

    burn_in_options = BurnInOptions(seconds=seconds, state=state, options=options, max_temperature_c=max_temperature)
    begun = "continued" if os.path.lexists(state) else "begun"
    note(f"gpucheck: burn-in of {span(seconds)}, {begun}, kept in {state}; Ctrl-C ends it with what is proven so far")
    try:
        with bar(sys.stderr) as shown, measured_host() as host, usage_errors(StateError):
            return burn_in(host, burn_in_options, Shown(step=shown, note=note), interrupted)
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        text = f"{state}: not writable: {error.strerror}. Free space, or name a file elsewhere with --state FILE."
        raise Problem(text, EXIT_NOT_WRITTEN) from error
