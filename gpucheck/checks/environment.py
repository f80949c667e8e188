"""Environment: do variables or configuration files left over from earlier tuning change what NCCL and CUDA do?

Sources: the environment of this process, /etc/nccl.conf and ~/.nccl.conf (NAME=VALUE lines, which NCCL reads when the
variable is not set). What each does: gpucheck/knowledge/environment.yml.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpucheck.checks._about import About
from gpucheck.knowledge.environment import variables
from gpucheck.model import Check, Finding, Host

NAME = "environment"
FILES = ("/etc/nccl.conf", "~/.nccl.conf")


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The steering variables by where they were found: ``environment`` or a file."""

    found: dict[str, dict[str, str]]


def probe(host: Host) -> Values:
    """Ask for the variables and read the files."""
    files = {path: _settings(host.read_text(str(Path(path).expanduser()))) for path in FILES}
    return Values(found={"environment": host.environment(), **files})


def _settings(text: str | None) -> dict[str, str]:
    lines = (line.strip() for line in (text or "").splitlines())
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for each variable that changes something, else one for the host."""
    known = variables()
    steering = [
        (place, known[name], value)
        for place, settings in values.found.items()
        for name, value in settings.items()
        if name in known and value not in known[name].harmless
    ]
    for place, variable, value in steering:
        about = About(check=NAME, evidence=(f"{place}: {variable.name}={value}",))
        fix = f"unset {variable.name}" if place == "environment" else f"remove the line from {place}"
        wanted = f"{variable.name} not set"
        yield about.warns(
            f"{variable.name}={value}", wanted, variable.effect, f"{fix}, unless it is meant", "leftover-environment"
        )
    if not steering:
        looked = ", ".join(sorted(values.found["environment"])) or "none"
        yield About(check=NAME, evidence=(f"steering variables that are set: {looked}",)).passes("nothing left over")


CHECK = Check(NAME, frozenset({"software", "settings", "quick"}), probe, evaluate)
