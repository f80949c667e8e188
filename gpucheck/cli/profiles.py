"""List simulated machines and injectable faults"""

from pathlib import Path
from typing import Any

import click
import msgspec

from gpucheck.cli._shared.common import Problem, output_options, write_result
from gpucheck.cli._shared.width import columns, table

SCHEMA = "gpucheck.profiles/1"


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
    machines = [(profile["name"], profile["summary"]) for profile in listing["profiles"]]
    faults = [(fault["usage"], fault["summary"]) for fault in listing["faults"]]
    return "\n".join(
        [
            "SIMULATED machines: --simulate NAME",
            *_table(machines),
            "",
            "Faults for them: --fault NAME[:key=value,...]",
            *_table(faults),
            "",
        ]
    )


def _table(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [f"  {name:<{width}}  {summary}" for name, summary in rows]
