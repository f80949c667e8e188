"""Accept a stated version that is missing from the tables, as unconfirmed: the repository check decides."""

from collections.abc import Sequence

from gpucheck.knowledge.recorded import recorded_packages
from gpucheck.stack.rules.libraries import numeric
from gpucheck.stack.types import Reason, Target
from gpucheck.stack.versions import request


def seen_version(folder: str, target: Target, names: Sequence[str], wanted: str, revision: str = "1") -> str | None:
    """Return the newest version that a request states and that is recorded for all packages.

    Returns the version as the specification names it, with the CUDA build after the revision
    (``2.30.4-1+cuda13.2`` -> ``2.30.4+cuda13.2``). Only stated versions are returned, never for a range or ``auto``.
    """
    requested = request(wanted)
    if not requested.prefix or len(requested.prefix) < 2:
        return None
    each = [set(recorded_packages(folder, target.arch, name)) for name in names]
    found = []
    for text in set.intersection(*each) if each else ():
        version, _, rest = text.partition("-")
        number, _, build = rest.partition("+")
        number = number.partition(".el")[0]
        if number == revision and requested.matches(version) and requested.build in ("", build):
            found.append(f"{version}+{build}" if build else version)
    return max(found, key=lambda text: numeric(text.partition("+")[0]), default=None)


def stated_exactly(wanted: str, numbers: int) -> str | None:
    """Return the version of a request that states all its numbers; None for the start of one, a range, auto or none."""
    requested = request(wanted)
    return requested.version if len(requested.prefix) == numbers else None


def seen_reason(component: str, version: str, carried: str = "", *, seen: bool = True) -> Reason:
    """Return the reason. carried: values copied from the nearest version in the tables. seen: a record shows it."""
    text = f"{version} as requested: a record shows it in the repository, it is missing from the tables"
    if not seen:
        text = f"{version} as requested: it is missing from the tables, and no record shows it in the repository"
    more = f"; {carried}" if carried else ""
    return Reason(component=component, because=text + more, rule="R18", source="cuda-repo", confirmed=False)
