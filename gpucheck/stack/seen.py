"""A stated version that the tables lack, and that a record shows in the repository: taken, and marked unconfirmed."""

from collections.abc import Sequence

from gpucheck.knowledge.recorded import recorded_packages
from gpucheck.stack.rules.libraries import numeric
from gpucheck.stack.types import Reason, Target
from gpucheck.stack.versions import request


def seen_version(folder: str, target: Target, names: Sequence[str], wanted: str, revision: str = "1") -> str | None:
    """The newest version that a request states and that is recorded for all packages.

    Returns the version as the specification names it, with the CUDA build behind the revision
    (``2.30.4-1+cuda13.2`` -> ``2.30.4+cuda13.2``). Nothing is taken that is not stated: no range, and no ``auto``.
    """
    asked = request(wanted)
    if not asked.prefix or len(asked.prefix) < 2:
        return None
    each = [set(recorded_packages(folder, target.arch, name)) for name in names]
    found = []
    for text in set.intersection(*each) if each else ():
        version, _, rest = text.partition("-")
        number, _, build = rest.partition("+")
        number = number.partition(".el")[0]
        if number == revision and asked.matches(version) and asked.build in ("", build):
            found.append(f"{version}+{build}" if build else version)
    return max(found, key=lambda text: numeric(text.partition("+")[0]), default=None)


def seen_reason(component: str, version: str, carried: str = "") -> Reason:
    """carried: what was taken from the nearest version that the tables hold."""
    text = f"{version} as asked for: a record shows it in the repository, the tables lack it"
    more = f"; {carried}" if carried else ""
    return Reason(component=component, because=text + more, rule="R18", source="cuda-repo", confirmed=False)
