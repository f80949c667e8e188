"""Packages with the driver's modules where the distribution builds them: one for each kernel, one for each flavor.

Pure functions of what was read.
"""

import re

from .kernel_headers import KERNEL_METAPACKAGE, later_kernels

# What one of them depends on is built for the same kernel and driver.
PACKAGE = re.compile(r"^linux-(modules|objects|signatures)-nvidia-\d")
# A kernel of this flavor is the generic one with fewer modules.
VIRTUAL = re.compile(r"^virtual(?=-|$)")


def name_for(plan, kernel):
    """The package for the release of a kernel or for a metapackage's flavor, "" where DKMS builds the modules."""
    pattern = (plan.get("kernel_modules") or {}).get("pattern") or ""
    return pattern.replace("{kernel}", kernel)


def wanted(plan, facts, packages):
    """Packages for the running kernel, for newer ones that the next boot may take, and for the flavors of both.

    The plan names those of the kernel that the lock knows, which may have been replaced since. A held metapackage
    counts: the plan holds them itself. flavors: false is the plan of a bundle, which has no later kernel.
    """
    if not name_for(plan, ""):
        return []
    flavors = [found.group("flavor") for found in map(KERNEL_METAPACKAGE.match, sorted(packages)) if found]
    if not plan["kernel_modules"].get("flavors", True):
        flavors = []
    kernels = [facts["kernel"], *later_kernels(facts), *(VIRTUAL.sub("generic", flavor) for flavor in flavors)]
    return list(dict.fromkeys(name_for(plan, kernel) for kernel in kernels))


def missing(plan, facts, packages):
    """Those of them that are not installed."""
    return [name for name in wanted(plan, facts, packages) if name not in packages]


def differences(plan, facts, packages):
    """Return messages for what is missing."""
    words = "{} is not installed, and contains the module of a kernel"
    return [words.format(name) for name in missing(plan, facts, packages)]


def installed(plan, packages):
    """Every installed package of such modules, of any kernel and driver; none where the plan has none."""
    return sorted(name for name in packages if PACKAGE.search(name)) if name_for(plan, "") else []


def kept(plan, packages):
    """Installed packages of modules of the planned driver: they stay for the kernels that they are for."""
    prefix = name_for(plan, "")
    return sorted(name for name in packages if prefix and name.startswith(prefix))
