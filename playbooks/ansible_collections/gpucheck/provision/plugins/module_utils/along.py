"""Packages that came along with a component, as its dependencies, and may move only with it: they are held, too.

A metapackage depends on its packages with ">=", so without a hold those of the toolkit move within 13.0 by themselves.
On apt, the planned preferences keep the driver's own together; on dnf nothing does: without a lock, every "dnf upgrade"
ends in conflicts with the planned ones.
"""

import re

from . import host_plan
from .host import lock_name
from .origin import NAMES
from .readers.packages import upstream

TOOLKIT = re.compile(r"^cuda-toolkit(-\d+-\d+)$")
CONFIGURATION = re.compile(r"^cuda-toolkit(-[\d-]+)?-config-common$")


def family(plan, name):
    """Whether a package name, with its version, is of those that come along with a component; None if none are."""
    rows = [row for part in host_plan.PACKAGE_COMPONENTS for row in host_plan.component(plan, part)[0]]
    planned = {row["name"] for row in rows}
    if name == "driver" and plan.get("package_manager") == "dnf" and host_plan.component(plan, name)[0]:
        return lambda other, version: (
            other not in planned
            and host_plan.DRIVER_FAMILY.search(other)
            and host_plan.DRIVER_VERSION.match(upstream(version))
        )
    toolkits = [TOOLKIT.match(row["name"]) for row in host_plan.component(plan, name)[0]] if name == "cuda" else []
    suffixes = tuple(found.group(1) for found in toolkits if found)
    if not suffixes:
        return None
    return lambda other, _: (
        other not in planned and (CONFIGURATION.search(other) or (other.endswith(suffixes) and NAMES.search(other)))
    )


def names(plan, packages, components=host_plan.PACKAGE_COMPONENTS):
    """Installed packages that came along with these components; of the driver's those at its planned version."""
    found = set()
    for name in components:
        belongs = family(plan, name)
        for other, version in packages.items() if belongs else ():
            due = name != "driver" or upstream(version) == plan["expected"]["driver_version"]
            if due and belongs(other, version):
                found.add(other)
    return found


def holds(plan, name, packages, held, locks):
    """(words, missing, stale) of what came along with a component, as hold_differences has them.

    While the component itself is about to change, its holds are stale: the resolvers move no held dependency.
    """
    found = sorted(names(plan, packages, [name]))
    changing = bool(host_plan.package_differences(plan, name, packages))
    if plan["package_manager"] == "apt":
        missing = [other for other in found if other not in held]
        return sentence(name, missing, changing), missing, [other for other in found if other in held and changing]
    missing, stale = lock_differences(plan, name, packages, locks, changing)
    return sentence(name, missing, changing), missing, stale


def sentence(name, missing, changing):
    """Return one message for all: a toolkit has some sixty packages. None while their component changes."""
    words = "{} packages installed with {} are not held at their version".format(len(missing), name)
    return [words] if missing and not changing else []


def lock_differences(plan, name, packages, locks, changing):
    """(missing, stale) entries of what came along with a component."""
    belongs = family(plan, name)
    if belongs is None:
        return [], []
    mine = [entry for entry in locks if belongs(lock_name(entry), entry[len(lock_name(entry)) + 1 :])]
    if changing:
        return [], mine
    wanted = ["{}-{}.*".format(other, packages[other]) for other in sorted(names(plan, packages, [name]))]
    good, known = ({host_plan.normal_lock(entry) for entry in entries} for entries in (wanted, locks))
    missing = [entry for entry in wanted if host_plan.normal_lock(entry) not in known]
    return missing, [entry for entry in mine if host_plan.normal_lock(entry) not in good]
