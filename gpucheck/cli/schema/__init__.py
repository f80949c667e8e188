"""Print the JSON Schema of a published document"""

import json
from pathlib import Path

import click

from gpucheck.cli._shared.common import OutputFile, Problem, write_result
from gpucheck.cli._shared.completion import completer
from gpucheck.printable import meant
from gpucheck.processes.atomic import SHARED


def _documents(_: str) -> dict[str, str]:
    from gpucheck.cli.schema.documents import DOCUMENTS

    return {name: one.printed for name, one in DOCUMENTS.items()}


@click.command()
@click.argument("name", required=False, shell_complete=completer(_documents))
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    help="Write the schema to FILE (atomically) instead of stdout (-).",
)
def COMMAND(name: str | None, output: Path | None) -> None:  # noqa: N802 - the name the command walk looks for
    """Print the JSON Schema of a published document. Default: list all documents.

    \b
    gpucheck schema report -o report.schema.json
    check-jsonschema --schemafile report.schema.json report.json
    """
    from gpucheck.cli.schema.documents import DOCUMENTS, schema_of

    if name is None:
        wide = [max(map(len, words)) for words in (DOCUMENTS, (one.schema for one in DOCUMENTS.values()))]
        lines = [
            f"{name:{wide[0]}}  {one.schema or '-':{wide[1]}}  {'promised' if one.promised else '-':8}  {one.printed}"
            for name, one in DOCUMENTS.items()
        ]
        write_result("\n".join(lines), output)
        return
    if name not in DOCUMENTS:
        hint = meant(name.removeprefix("gpucheck.").partition("/")[0], DOCUMENTS)
        raise Problem(f"{name}: unknown document.{hint} Available: {', '.join(DOCUMENTS)}.")
    write_result(json.dumps(schema_of(name), indent=2), output, mode=SHARED)
