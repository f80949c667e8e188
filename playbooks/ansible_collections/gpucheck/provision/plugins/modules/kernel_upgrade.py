#!/usr/bin/python
"""Upgrade a host's kernel, with its headers, from the host's own package sources."""

DOCUMENTATION = r"""
module: kernel_upgrade
short_description: Upgrade the kernel and its headers from the host's own package sources
description:
  - For a host whose sources no longer have the headers of its running kernel, so that DKMS cannot build for it.
  - Chooses the newest kernel that the sources offer together with its headers. On apt that is what the installed kernel
    metapackages (linux-image-generic) bring, on dnf the packages that the running kernel has.
  - Simulates the transaction first. One that would remove, downgrade or change foreign packages is rejected.
  - The new kernel belongs to the system, and deprovisioning keeps it. The caller reboots into it.
options:
  host: {type: str, required: true, description: "The host's name in the inventory, for messages."}
  plan: {type: dict, required: true, description: "The host's plan, schema gpucheck.plan/1."}
  state: {type: str, choices: [asked, prepared, present], default: present, description: "C(asked) returns which kernel
    it would be, from lists fetched into a temporary directory, and changes nothing. C(prepared) simulates and
    downloads, so that what fails early fails before the host is drained. C(present) installs."}
  allow_changes: {type: list, elements: str, default: [], description: "Names or patterns of foreign packages that the
    transaction may remove, downgrade, or change though held."}
  lock_timeout_s: {type: int, default: 600, description: Seconds to wait while another program holds the package
    manager's lock.}
notes:
  - Why this module exists. M(ansible.builtin.apt) and M(ansible.builtin.dnf) do not choose a kernel by its headers or
    reject a transaction beforehand.
author: gpucheck
"""

RETURN = r"""
release: {returned: success, type: str, description: "The kernel, empty if there is none to upgrade to."}
reason: {returned: success, type: str, description: "Why there is none, empty if there is one."}
packages: {returned: success, type: list, elements: str, description: What is requested from the package manager.}
headers: {returned: unless state is asked, type: list, elements: str, description: "The plan's header packages under
  that kernel, as the next run plans them."}
"""

import re

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import apt, dnf, kernel, offers, record, transaction
from ..module_utils.call import Refused, call, explained
from ..module_utils.host import lock_name, read_facts
from ..module_utils.kernel_packages import KERNEL_METAPACKAGE, header_names, release_key
from ..module_utils.place import as_bytes, write
from ..module_utils.readers.files import Unreadable

DEB_IMAGE = re.compile(r"^linux-image-(?:unsigned-)?(?P<release>\d.*)$")
# What is installed once for every kernel: not kernel-tools, and no headers, which the plan names.
RPM_IMAGE = re.compile(r"^kernel(-uek|-64k|-rt|-debug)*(-core|-modules|-modules-core|-modules-extra)?$")
OFFERS = ["dnf", "--quiet", "repoquery", "--available", "--queryformat", "%{name} %{version}-%{release}.%{arch}\n"]
REFUSED = (
    "the kernel cannot be upgraded: {}. No kernel was installed. Upgrade it by hand and reboot, or set kernel: keep in "
    "stack.yml and boot a kernel whose headers are available."
)


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


def query(module, plan, known):
    """(release, packages, reason) by lists that are fetched now into a folder of their own."""
    try:
        if plan["package_manager"] == "dnf":
            return (*target(module, plan, *known), "")
        with offers.fresh_lists() as options:
            return (*target(module, plan, *known, options), "")
    except (Refused, Unreadable) as error:
        return "", [], str(error)


def go(module, plan, known):
    """(release, packages): download, with state present install. Raises Refused."""
    seconds, manager = module.params["lock_timeout_s"], plan["package_manager"]
    tool = {"apt": apt, "dnf": dnf}[manager]
    tool.read_lists(module, [], seconds)
    release, packages = target(module, plan, *known)
    words = [*lifting(plan, *known), "install", *packages]
    blocked = held(plan, *known)
    rows = moves(module, plan, words)
    guard(rows, plan, blocked, module.params["allow_changes"])
    if module.params["state"] == "prepared":
        words = [{"apt": "--download-only", "dnf": "--downloadonly"}[manager], *words]
    (apt.apt_get if manager == "apt" else dnf.dnf)(module, words, seconds)
    return release, packages


def disown(module):
    """Count the kernel packages that are there now as the system's: deprovisioning and cleanup leave them."""
    noted = record.read(record.TRANSACTION)
    if noted:
        _, extras = read_facts(module.params["host"])
        new = [name for name in extras["packages"] if of_kernel(name)]
        noted["packages"] = sorted(set(noted["packages"]) | set(new))
        write(module, record.TRANSACTION, as_bytes(noted))


def main():
    """Query or change."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "plan": {"type": "dict", "required": True},
            "state": {"type": "str", "choices": ["asked", "prepared", "present"], "default": "present"},
            "allow_changes": {"type": "list", "elements": "str", "default": []},
            "lock_timeout_s": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    plan, state = module.params["plan"], module.params["state"]
    with explained(module, module.params["host"], REFUSED):
        known = read_facts(module.params["host"])
        if state == "asked" or module.check_mode:
            release, packages, reason = query(module, plan, known)
            module.exit_json(changed=False, release=release, packages=packages, reason=reason)
        release, packages = go(module, plan, known)
        if state == "present":
            disown(module)
        names = header_names(plan, known[0]["kernel"], release)
    module.exit_json(changed=state == "present", release=release, packages=packages, reason="", headers=names)


if __name__ == "__main__":
    main()
