"""The packages that a kernel needs: headers that DKMS builds with, or modules that the distribution has built.

Headers are those of the running kernel, of later ones, and of those that upgrades bring. Of built modules there is a
package for each kernel and one for each flavor. Pure functions of what was read.
"""

import re

from .readers.kernels import release_key

# linux-image-6.8.0-106-generic is one kernel, linux-image-extra-virtual and -dbg belong to one.
KERNEL_METAPACKAGE = re.compile(r"^linux-image-(?!\d|extra-|unsigned-)(?P<flavor>(?!.*-dbg)[a-z][a-z0-9.+-]*)$")


def later_kernels(facts):
    """Installed kernels that are newer than the running one: the next boot takes the newest."""
    return [release for release in facts["kernels"] if release_key(release) > release_key(facts["kernel"])]


def headers_missing(plan, facts, packages):
    """Header packages of the plan that a kernel still lacks: the running one, or one that the next boot may take."""
    missing = []
    for release in [facts["kernel"], *later_kernels(facts)]:
        if release in facts["headers"]:
            continue
        missing += [name for name in header_names(plan, facts["kernel"], release) if name not in packages]
    return missing + [name for name in header_metapackages(plan, facts, packages) if name not in packages]


def header_metapackages(plan, facts, packages):
    """What brings headers with the next kernel: the metapackage of the flavor of each kernel metapackage.

    Without a kernel metapackage, or with one that is held, no upgrade brings a kernel.
    """
    pattern = plan.get("header_metapackage") or ""
    flavors = [KERNEL_METAPACKAGE.match(name) for name in sorted(packages) if pattern and name not in facts["holds"]]
    return [pattern.format(flavor=found.group("flavor")) for found in flavors if found]


def header_names(plan, kernel, release):
    """The plan's header packages, which are those of the running kernel, for this release.

    Packages of a variant (5.14.0-503.el9.aarch64+64k) bear the release without it. The next boot takes another variant
    only if configured, and the plan does not have the names of its packages.
    """
    (base, _, variant), (wanted, _, other) = kernel.partition("+"), release.partition("+")
    whole = [name.replace(kernel, release) for name in plan["headers"] if kernel in name]
    if whole or variant != other:
        return whole if variant == other else []
    return [name.replace(base, wanted) for name in plan["headers"] if base in name]


# What one of them depends on is built for the same kernel and driver.
PACKAGE = re.compile(r"^linux-(modules|objects|signatures)-nvidia-\d")
# A kernel of this flavor is the generic one with fewer modules.
VIRTUAL = re.compile(r"^virtual(?=-|$)")


def modules_for(plan, kernel):
    """The package for the release of a kernel or for a metapackage's flavor, "" where DKMS builds the modules."""
    pattern = (plan.get("kernel_modules") or {}).get("pattern") or ""
    return pattern.replace("{kernel}", kernel)


def modules_wanted(plan, facts, packages):
    """Packages for the running kernel, for newer ones that the next boot may take, and for the flavors of both.

    The plan names those of the kernel that the lock knows, which may have been replaced since. A held metapackage
    counts: the plan holds them itself. flavors: false is the plan of a bundle, which has no later kernel.
    """
    if not modules_for(plan, ""):
        return []
    flavors = [found.group("flavor") for found in map(KERNEL_METAPACKAGE.match, sorted(packages)) if found]
    if not plan["kernel_modules"].get("flavors", True):
        flavors = []
    kernels = [facts["kernel"], *later_kernels(facts), *(VIRTUAL.sub("generic", flavor) for flavor in flavors)]
    return list(dict.fromkeys(modules_for(plan, kernel) for kernel in kernels))


def modules_missing(plan, facts, packages):
    return [name for name in modules_wanted(plan, facts, packages) if name not in packages]


def modules_differences(plan, facts, packages):
    missing = modules_missing(plan, facts, packages)
    return [f"{name} is not installed, and contains the module of a kernel" for name in missing]


def modules_installed(plan, packages):
    """Every installed package of such modules, of any kernel and driver; none where the plan has none."""
    return sorted(name for name in packages if PACKAGE.search(name)) if modules_for(plan, "") else []


def modules_kept(plan, packages):
    """Installed packages of modules of the planned driver: they stay for the kernels that they are for."""
    prefix = modules_for(plan, "")
    return sorted(name for name in packages if prefix and name.startswith(prefix))
