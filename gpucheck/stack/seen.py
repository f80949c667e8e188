"""Accept a stated version that is missing from the tables if a record shows it in the repository, as unconfirmed."""

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


def seen_reason(component: str, version: str, carried: str = "") -> Reason:
    """Return the reason. carried: values copied from the nearest version in the tables."""
    text = f"{version} as requested: a record shows it in the repository, it is missing from the tables"
    more = f"; {carried}" if carried else ""
    return Reason(component=component, because=text + more, rule="R18", source="cuda-repo", confirmed=False)
