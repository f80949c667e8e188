"""The newest kernel that a host's own package sources offer together with its headers."""

import re

from . import kernel, transaction
from .call import Refused, call
from .host import lock_name
from .kernel_headers import KERNEL_METAPACKAGE, header_names, release_key

DEB_IMAGE = re.compile(r"^linux-image-(?:unsigned-)?(?P<release>\d.*)$")
# What is installed once for every kernel: not kernel-tools, and no headers, which the plan names.
RPM_IMAGE = re.compile(r"^kernel(-uek|-64k|-rt|-debug)*(-core|-modules|-modules-core|-modules-extra)?$")
OFFERS = ["dnf", "--quiet", "repoquery", "--available", "--queryformat", "%{name} %{version}-%{release}.%{arch}\n"]


def of_kernel(name):
    """Whether a package moves with a kernel; the oldest one goes where the host keeps so many."""
    return bool(kernel.DEB.search(name) or kernel.RPM.match(name))


def unplanned_holds(plan):
    """Holds of kernel packages that we set, where the plan no longer has them."""
    return set() if plan.get("kernel_lock") == "hold" else set(kernel.noted())


def held(plan, facts, extras):
    """Return names of held packages, except managed ones that the plan lifts."""
    if plan["package_manager"] == "apt":
        return set(facts["holds"]) - unplanned_holds(plan)
    return {lock_name(entry) for entry in extras["locks"] if entry not in unplanned_holds(plan)}


def lifting(plan, facts, extras):
    """Return options that have the package manager ignore managed holds."""
    if not unplanned_holds(plan):
        return []
    if plan["package_manager"] == "apt":
        return ["--allow-change-held-packages"]
    # The plugin knows only all or none.
    others = [name for name in held(plan, facts, extras) if RPM_IMAGE.search(name)]
    return [] if others else ["--disableplugin=versionlock"]


def newer(facts, releases):
    """The newest release that is newer than every installed kernel, "" for none."""
    there = max(release_key(release) for release in [facts["kernel"], *facts["kernels"]])
    later = [release for release in releases if release_key(release) > there]
    return max(later, key=release_key) if later else ""


def apt_target(module, plan, facts, extras, options=()):
    """Return (release, packages) of the upgrade. options: of apt. Raises Refused with the reason if there is none."""
    packages, blocked = extras["packages"], held(plan, facts, extras)
    found = [row for row in map(KERNEL_METAPACKAGE.match, sorted(packages)) if row]
    images = [row.group(0) for row in found if row.group(0) not in blocked]
    if not images:
        words = "{} is held".format(found[0].group(0)) if found else "no kernel metapackage is installed"
        raise Refused("{}, so an upgrade installs no kernel (linux-image-generic for example would)".format(words))
    pattern = plan.get("header_metapackage") or "linux-headers-{flavor}"
    names = images + [pattern.format(flavor=row.group("flavor")) for row in found if row.group(0) in images]
    words = [*options, *lifting(plan, facts, extras), "install", *names]
    arriving = {name for verb, name, _ in transaction.apt_moves(module, words) if verb == "install"}
    releases = [row.group("release") for row in map(DEB_IMAGE.match, arriving) if row]
    release = newer(facts, releases)
    if not release:
        raise Refused("the package sources have no newer kernel for {}".format(", ".join(images)))
    lacking = [name for name in header_names(plan, facts["kernel"], release) if name not in arriving | set(packages)]
    if lacking:
        raise Refused("kernel {} would be installed without {}".format(release, ", ".join(lacking)))
    return release, names


def dnf_target(module, plan, facts, extras, options=()):
    """Return (release, packages) of the upgrade. options: of dnf. Raises Refused with the reason if there is none."""
    base, plus, variant = facts["kernel"].partition("+")
    version = base.rpartition(".")[0]
    images = sorted(name for name, seen in extras["kernels"].items() if RPM_IMAGE.search(name) and version in seen)
    if not images:
        raise Refused("the running kernel {} belongs to no package".format(facts["kernel"]))
    headers = sorted(name[: -len(base) - 1] for name in plan["headers"] if name.endswith("-" + base))
    queried = [*images, *headers]
    output = call(module, [*OFFERS, *options, *lifting(plan, facts, extras), *queried], shown="dnf repoquery")
    offers = {}
    for line in output.splitlines():
        name, _, release = line.strip().partition(" ")
        offers.setdefault(release, set()).add(name)
    arch = base.rpartition(".")[2]
    complete = [one for one, names in offers.items() if names >= set(queried) and one.endswith("." + arch)]
    release = newer(facts, [one + plus + variant for one in complete])
    if not release:
        raise Refused("the package sources have no newer kernel with {}".format(", ".join(headers) or "its headers"))
    return release, ["{}-{}".format(name, release.partition("+")[0]) for name in queried]


TARGETS = {"apt": apt_target, "dnf": dnf_target}


def target(module, plan, facts, extras, options=()):
    """Return (release, packages): the kernel to upgrade to, and the packages to request. Raises Refused."""
    return TARGETS[plan["package_manager"]](module, plan, facts, extras, options)


def moves(module, plan, words):
    """Rows of what the installation would do. Raises Refused."""
    query_moves = transaction.apt_moves if plan["package_manager"] == "apt" else transaction.dnf_moves
    return query_moves(module, words)


def guard(rows, plan, blocked, allowed):
    """Raise Refused if the upgrade would remove, downgrade or move foreign packages that are not allowed."""
    moving = {name for _, name, _ in rows if of_kernel(name) and name not in blocked}
    transaction.guard(rows, {"plan": plan, "planned": moving, "held": blocked, "allowed": allowed})
