"""Merge the reports of many hosts into one."""

from pathlib import Path

import click

from gpucheck.cli._common import Problem, output_options, write_result
from gpucheck.model import EXIT_STATUS


@click.group()
def COMMAND() -> None:  # noqa: N802 - the name the command walk looks for
    """Merge the reports of many hosts into one."""


@COMMAND.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--expect",
    multiple=True,
    metavar="HOST",
    help="A host that must have a report; without one it is an UNKNOWN row. Repeatable, or separated by commas.",
)
@output_options("text", "json")
def report(sources: tuple[Path, ...], expect: tuple[str, ...], format_: str, output: Path | None) -> int:
    """Merge SOURCES (report files, or folders of *.json) into one table; the exit status is the fleet's verdict."""
    from gpucheck.fleet import merge, read_reports
    from gpucheck.render import fleet as render

    files: list[Path] = []
    for source in sources:
        if source.is_dir():
            files += sorted(source.glob("*.json"))
        elif source.exists():
            files.append(source)
        else:
            raise Problem(
                f"{source}: no such file or folder. Give report files, or the folder that verify wrote them to."
            )
    expected = [host for word in expect for host in word.split(",") if host]
    if not files and not expected:
        folders = ", ".join(map(str, sources))
        raise Problem(f"{folders}: holds no *.json report. Run verify first: make verify.", exit_code=3)
    fleet = merge(read_reports(files), expected)
    text = render.to_json(fleet) if format_ == "json" else render.to_text(fleet)
    write_result(text if output is None else click.unstyle(text), output)
    return EXIT_STATUS[fleet.verdict]
