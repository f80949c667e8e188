"""Many hosts' reports: one that is broken or hostile must not spoil the others."""

from datetime import datetime, timezone
from functools import cache

from gpucheck import fleet
from gpucheck.model import Verdict
from gpucheck.model.fleet import FleetReport, FleetRow
from tests.fuzz.oracles import CHECKS, Wrong, no_better, refusing, simulated, terminal
from tests.fuzz.seeds import attacks, own
from tests.fuzz.target import file, target

NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)


@target(seeds=own.reports, format="json", attacks=attacks.reports)
def fleet_report(data: bytes) -> None:
    """A folder of reports with a hostile one in it."""
    _merged([*fleet.read_file(file(data, "hostile.json")), *_good()])


@target(seeds=own.streams, format="text")
def fleet_stream(data: bytes) -> None:
    """What srun, kubectl or cat printed."""
    import io

    _merged([*fleet.read_stream(io.BytesIO(data)), *_good()])


@target(seeds=own.merges, format="json")
def fleet_previous(data: bytes) -> None:
    """fleet report --baseline."""
    from gpucheck.fleet.compare import read_previous

    with refusing(ValueError, OSError):
        previous = read_previous(file(data, "earlier.json"))
        _shown(fleet.merge(_good(), previous=previous, now=NOW))


@cache
def _good() -> tuple[FleetRow, ...]:
    """Hosts that a hostile report must not take away."""
    files = [file(content, f"good{n}.json") for n, content in enumerate(own.healthy(), 1)]
    return tuple(row for file in files for row in fleet.read_file(file))


def _merged(rows: list[FleetRow]) -> None:
    for row in rows:
        _row(row)
    merged = fleet.merge(rows, now=NOW)
    if merged.verdict is Verdict.PASS and any(row.verdict is Verdict.FAIL for row in rows):
        raise Wrong("a fleet that passes though a report fails")
    _shown(merged)


def _row(row: FleetRow) -> None:
    no_better(row.verdict, row.problems, "a host's row")


def _shown(merged: FleetReport) -> None:
    from gpucheck.render.fleet import FORMATS, render

    hosts = {row.host for row in merged.hosts}
    for row in merged.hosts:
        no_better(row.verdict, row.problems, "a host of the fleet")
    if any(row.simulated for row in merged.hosts) and not merged.simulated:
        raise Wrong("a fleet with simulated hosts that is not marked")
    lost = {row.host for row in _good()} - hosts
    if lost:
        raise Wrong("hosts that a hostile report took away", ", ".join(sorted(lost)))
    text = render(merged, "text", verbose=True)
    terminal(text, "fleet report's text")
    if merged.simulated:
        simulated(text, "fleet report's text")
    for name in FORMATS:
        CHECKS[name](render(merged, name), f"fleet report's {name}")
    _selected(merged)


def _selected(merged: FleetReport) -> None:
    """--select: what a launcher reads are the chosen hosts and nothing more."""
    from gpucheck.fleet.select import is_host_name, select

    with refusing(LookupError, ValueError):
        wrong = [row.host for row in select(merged, 1, allow_warn=True).hosts if not is_host_name(row.host)]
        if wrong:
            raise Wrong("--select writes more than host names", ascii(wrong[0][:120]))
