"""gpucheck stack rules: the compatibility rules as a page."""

from pathlib import Path

import click

from gpucheck.cli._shared.common import OutputFile, write_result
from gpucheck.cli.stack.common import guarded
from gpucheck.processes.atomic import SHARED


@click.command("rules")
@click.option("-o", "--output", type=OutputFile(), metavar="FILE", help="Write the page to FILE instead of stdout.")
def rules(output: Path | None) -> None:
    """Print the compatibility rules as a Markdown page.

    With their sources, as in docs/stack-rules.md.
    """
    from gpucheck.stack.page import rules_page

    write_result(guarded(rules_page), output, mode=SHARED)
