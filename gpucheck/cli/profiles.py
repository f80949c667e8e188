"""List simulated machines and injectable faults"""

from pathlib import Path
from typing import Any

import click
import msgspec

from gpucheck.cli._shared.common import Problem, output_options, write_result
from gpucheck.cli._shared.width import columns, table

SCHEMA = "gpucheck.profiles/1"
MACHINES, FAULTS = "SIMULATED machines: --simulate NAME", "Faults for them: --fault NAME[:key=value,...]"


@click.command()
@output_options("text", "json")
def COMMAND(format_: str, output: Path | None) -> None:  # noqa: N802 - found by its name
    """List simulated machines (--simulate) and faults (--fault)."""
    listing = _listing()
    if format_ == "json":
        write_result(msgspec.json.format(msgspec.json.encode(listing), indent=2).decode(), output)
    else:
        write_result(table(_text(listing), columns(output)), output)


def _listing() -> dict[str, Any]:
    from gpucheck.simulator import all_faults, load, profile_names

    try:
        profiles = [load(name) for name in profile_names()]
    except ValueError as error:
        raise Problem(f"{error.args[0]}. Correct that file of gpucheck/simulator.") from error
    return {
        "schema": SCHEMA,
        "profiles": [
            {
                "name": profile.name,
                "summary": profile.summary,
                "gpus": sum(device.gpu is not None for device in profile.devices),
                "driver": profile.driver.version if profile.driver.present else None,
                "source": profile.source,
            }
            for profile in profiles
        ],
        "faults": [{"name": fault.name, "usage": fault.usage, "summary": fault.summary} for fault in all_faults()],
    }


def _text(listing: dict[str, Any]) -> str:
    from gpucheck.render.write import terminal

    machines = [(f"  {profile['name']}", profile["summary"]) for profile in listing["profiles"]]
    faults = [(f"  {fault['usage']}", fault["summary"]) for fault in listing["faults"]]
    tables = (terminal.table((title, ""), rows) for title, rows in ((MACHINES, machines), (FAULTS, faults)))
    return "\n\n".join(map("\n".join, tables)) + "\n"
