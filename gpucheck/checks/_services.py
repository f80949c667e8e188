"""What systemd reports about a unit, for the checks of services."""

from collections.abc import Iterable

from gpucheck.model.facts import Facts

NOT_FOUND = "not-found"
WORDS = {NOT_FOUND: "no such unit", None: "systemd cannot be queried from here"}


def unit_lines(facts: Facts, unit: str, packages: Iterable[str]) -> tuple[str, ...]:
    """Return evidence: the state of a unit, and those of its packages that are installed."""
    state = facts.services[unit]
    installed = (f"package {package.name} {package.version}" for package in facts.installed(packages))
    return (f"{unit}.service: {WORDS.get(state, state)}", *installed)
