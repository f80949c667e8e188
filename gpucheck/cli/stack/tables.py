"""gpucheck stack tables: which tables are in use, and rows for them from NVIDIA's lists of releases."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpucheck.cli._shared.common import Problem, note, write_result
from gpucheck.cli.stack.common import EXIT_UNKNOWN, KNOWLEDGE, guarded
from gpucheck.model.finding import EXIT_NOT_WRITTEN, EXIT_USAGE
from gpucheck.processes.atomic import SHARED

if TYPE_CHECKING:
    from gpucheck.knowledge.releases import Rows

WEB = "web"


@click.command("tables")
@click.option(
    "--update",
    "sources",
    multiple=True,
    is_flag=False,
    flag_value=WEB,
    metavar="[FILE|URL]",
    help="Add rows from releases.json or redistrib_*.json. Default: NVIDIA's releases.json on the web. Repeatable.",
)
def tables_command(sources: tuple[str, ...]) -> None:
    """Print which tables are in use, or update them.

    With --update, rows from NVIDIA's lists are written to the directory of --knowledge-dir, or to
    ~/.local/share/gpucheck/knowledge, which every stack command reads if no other is named. Files
    that you wrote are not replaced, and a list that is malformed changes nothing.

    Exit status: 3 if a list cannot be fetched, 64 if it is malformed.
    """
    from gpucheck.knowledge import site_tables, tables

    if not sources:
        click.echo(f"tables of gpucheck, {guarded(tables.drivers).as_of}")
        for path in site_tables():
            click.echo(f"with rows of {path}")
        return
    for source in sources:
        _update(source)


def _update(source: str) -> None:
    """Add the rows of one list, and of the lists that it leads to."""
    from gpucheck.knowledge import tables
    from gpucheck.knowledge.releases import new_branches

    lists = tables.drivers().lists
    added = _read(lists.releases if source == WEB else source)
    _write(added)
    # NVIDIA's list of all drivers lacks the CUDA version of each.
    for version in new_branches(added) if source == WEB else ():
        _write(_read(lists.redistrib.format(version=version)))


def _read(source: str) -> "Rows":
    """Return the rows of a list in a file or at an address. Raises Problem."""
    from gpucheck.foreign import UnreadableInput, read_bytes
    from gpucheck.knowledge.releases import MOST_BYTES, ReleaseListError, read_list
    from gpucheck.repositories.fetching import SCHEMES, Network, without_credentials
    from gpucheck.repositories.index import UnusableIndex

    scheme, web, _ = source.rpartition("://")
    if web and scheme not in SCHEMES:
        raise Problem(f"{without_credentials(source)}: neither a file nor an https, http or file address")
    try:
        content = Network().get(source, MOST_BYTES) if web else read_bytes(Path(source), MOST_BYTES)
        rows: Rows = guarded(lambda: read_list(content, without_credentials(source) if web else source))
    except UnusableIndex as error:
        raise Problem(f"{error}. Download it elsewhere and name the file: --update FILE.", EXIT_UNKNOWN) from error
    except (UnreadableInput, ReleaseListError) as error:
        raise Problem(str(error), EXIT_USAGE) from error
    return rows


def _write(added: "Rows") -> None:
    """Write the tables with these rows, and use them from now on. Raises Problem before any is written."""
    from gpucheck.knowledge.releases import (
        ReleaseListError,
        SiteTableError,
        changes,
        made_here,
        made_text,
        site_rows,
        use_site_tables,
        with_rows,
    )

    folder: Path = click.get_current_context().meta[KNOWLEDGE]
    try:
        existing = {name: site_rows(folder / name) for name in added if (folder / name).exists()}
        foreign = next((folder / name for name in existing if not made_here(folder / name)), None)
        if foreign:
            raise Problem(
                f"{foreign}: your own file, which is not replaced. Name another directory: --knowledge-dir DIR."
            )
        found: dict[str, Any] = with_rows(existing, added)
    except (ReleaseListError, SiteTableError) as error:
        raise Problem(str(error)) from error
    if not added:
        note(f"{folder}: no changes")
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(f"{folder}: {error.strerror}", EXIT_NOT_WRITTEN) from error
    for name in added:
        write_result(made_text(name, found[name]), folder / name, mode=SHARED)
    for line in changes(added):
        click.echo(line)
    note(f"{folder}: {', '.join(sorted(added))} written")
    use_site_tables(folder)
