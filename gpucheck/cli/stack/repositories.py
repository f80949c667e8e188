"""gpucheck stack check-repositories: whether the repositories hold what the plans install."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from gpucheck.cli._shared.common import DIRECTORY, Problem, note, output_options, usage_errors, write_result
from gpucheck.cli.stack.common import EXIT_IMPOSSIBLE, EXIT_UNKNOWN, ExistingFile, as_json, guarded, lock_option

if TYPE_CHECKING:
    from gpucheck.repositories.fetching import Fetch
    from gpucheck.stack.plan import Plan

EXIT_STATUS = {"pass": 0, "fail": EXIT_IMPOSSIBLE, "unknown": EXIT_UNKNOWN}


@click.command("check-repositories")
@lock_option
@click.option(
    "--group", "groups", multiple=True, metavar="NAME", help="Check only this group of the lock file. Repeatable."
)
@click.option(
    "--index",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Read indexes saved in DIR.",
)
@click.option("--save", type=DIRECTORY, help="Also save the indexes in DIR, for --index or a bug report.")
@click.option("--netrc", type=ExistingFile, help="Credentials of mirrors. Default: ~/.netrc.")
@click.option("--ca-file", type=ExistingFile, help="Trust these certificate authorities, not the system's (PEM).")
@output_options("text", "json")
def check_repositories(
    lock_file: Path,
    groups: tuple[str, ...],
    index: Path | None,
    save: Path | None,
    netrc: Path | None,
    ca_file: Path | None,
    format_: str,
    output: Path | None,
) -> None:
    """Compare planned packages with repository indexes.

    Fetches each index once, verifies its signature with the pinned key, and looks up every name, version and
    dependency. Downloads no package and changes nothing. Uses https_proxy and no_proxy.

    Exit status: 0 everything is there, 2 a package is missing or a repository is rejected, 3 an index could not be
    read.
    """
    from datetime import datetime, timezone

    from gpucheck.repositories import check_plans
    from gpucheck.repositories.comparison import to_text
    from gpucheck.repositories.fetching import Network, saved, saving

    if index is not None and (save or netrc or ca_file):
        raise Problem("--index reads saved indexes only: omit --save, --netrc and --ca-file.")
    plans = guarded(lambda: _plans(lock_file, groups))
    now = datetime.now(timezone.utc)
    fetch: Fetch
    with usage_errors(ValueError):
        fetch = saved(index) if index is not None else Network(netrc_file=netrc, ca_file=ca_file).get
    try:
        report = check_plans(plans, fetch if save is None else saving(fetch, save), now)
    except OSError as error:
        raise Problem(f"{save}: cannot be written: {error.strerror or error}. Name another directory.") from error
    write_result(as_json(report) if format_ == "json" else to_text(report), output)
    raise Exit(EXIT_STATUS[report.verdict])


def _plans(lock_file: Path, groups: tuple[str, ...]) -> "list[Plan]":
    """Return the plans of the groups of a lock. A group without a plan is reported on stderr and skipped."""
    from gpucheck.stack import Refusal
    from gpucheck.stack.lock import read_lock_file
    from gpucheck.stack.plan import plan

    lock = read_lock_file(lock_file)
    plans = []
    for name in groups or lock.groups:
        found = plan(lock, group=name)
        if isinstance(found, Refusal):
            reasons = "; ".join(conflict.because for conflict in found.conflicts)
            note(f"{name}: not compared: no plan: {reasons}")
        else:
            plans.append(found)
    return plans
