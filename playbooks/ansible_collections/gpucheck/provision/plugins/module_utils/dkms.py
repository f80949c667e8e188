"""Where DKMS comes from if the host's own sources lack it: the plan's repository, for what it may supply alone."""

import glob
import os
import re

from . import package_repository, place, signing_keys
from .call import Refused, call
from .readers.files import text

SECTION = re.compile(r"^\[([^\]]+)\]", re.MULTILINE)


def wanted(plan, packages):
    """The plan's source of DKMS, {} where the plan has none or everything that it would supply is installed."""
    source = plan.get("dkms_source") or {}
    row = source.get("repository")
    return source if row and any(name not in packages for name in row["include"]) else {}


def enabling(source):
    """Return arguments that make one call of dnf use repositories of the system itself, as far as the host has them.

    The host's own settings are unchanged. One that does not respond is skipped: it may not be needed.
    """
    files = glob.glob(os.path.join(package_repository.YUM_REPOS, "*.repo"))
    known = {name for path in files for name in SECTION.findall(text(path) or "")}
    names = [name for name in source.get("enable") or [] if name in known]
    return ["--setopt={}.{}".format(name, word) for name in names for word in ("enabled=1", "skip_if_unavailable=1")]


def supply(module, source, dnf):
    """Add the repository unless another source has the package. Raises Refused, and removes the repository then.

    dnf: calls it with arguments, returns its output. Called after the prerequisites, which may add a source.
    """
    row = source.get("repository")
    if not row:
        return
    offered = set(dnf([*enabling(source), "repoquery", "--queryformat", "%{name}\n", *row["include"]]).split())
    if offered.issuperset(row["include"]):
        return
    key = signing_keys.pinned(module, row["key_url"], package_repository.pins(row["key_fingerprint"]))[1]
    path = package_repository.paths(row)[1]
    place.put(module, path, key)
    call(module, ["rpm", "--import", path])
    files = package_repository.rows(row)
    for target, content, mode in files:
        place.put(module, target, content.encode("utf-8"), mode)
    try:
        dnf(["--refresh", "makecache", "--repo", row["name"]])
    except Refused as error:
        for target, _, _ in files:
            place.remove(target)
        raise Refused(
            "No source of this host offers {}, and repository {} of the plan cannot be read: {}. Set repositories: "
            "epel in stack.yml to a mirror of it, or to none if your own sources will have the package".format(
                ", ".join(row["include"]), row["name"], str(error).rstrip(".")
            )
        )
