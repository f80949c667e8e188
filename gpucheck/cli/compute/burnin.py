"""The level burn-in of ``gpucheck compute``: its time, its file, its progress."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gpucheck.cli._shared.common import EXIT_NOTHING, Problem, note
from gpucheck.cli.bandwidth.progress import bar
from gpucheck.model.finding.verdict import EXIT_NOT_WRITTEN, EXIT_USAGE

if TYPE_CHECKING:
    from gpucheck.compute.measure import Options
    from gpucheck.model.compute import ComputeReport

STATE = Path("gpucheck-burn-in.json")


def seconds_of(text: str) -> int:
    """Return the seconds of --duration. Raises Problem."""
    from gpucheck.compute.burnin.plan import duration

    try:
        return duration(text)
    except ValueError as error:
        raise Problem(f"--duration: {error}.", EXIT_USAGE) from error


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
    from gpucheck.host import live_host
    from gpucheck.measure.planning.selection import Unmeasurable
    from gpucheck.run import burn_in

    asked = BurnInOptions(seconds=seconds, state=state, options=options, max_temperature_c=max_temperature)
    begun = "continued" if state.exists() else "begun"
    note(f"gpucheck: burn-in of {span(seconds)}, {begun}, kept in {state}; Ctrl-C ends it with what is proven so far")
    try:
        with bar(sys.stderr) as shown:
            return burn_in(live_host(isolated=True, deadline_s=20.0), asked, Shown(step=shown, note=note), interrupted)
    except Unmeasurable as error:
        raise (Problem(str(error)) if error.usage else Problem(str(error), EXIT_NOTHING)) from error
    except StateError as error:
        raise Problem(str(error), EXIT_USAGE) from error
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        text = f"{state}: not writable: {error.strerror}. Free space, or name a file elsewhere with --state FILE."
        raise Problem(text, EXIT_NOT_WRITTEN) from error
