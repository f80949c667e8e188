"""The header packages that a host lacks: of the running kernel, of later ones, and of those that upgrades bring.

Pure functions of what was read.
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
