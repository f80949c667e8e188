"""What gpucheck installed on a host, and what of it is no longer planned. Pure, but for the files and relations read.

installed.json    result of the last completed run: the planned packages, all that came with them, managed files
baseline.json     what was there before us: the content of files that we replaced, rpm keys, the dnf module stream;
                  adopted: the address of each source file that a planned one replaces
transaction.json  the packages from before a run that has not finished; the next run continues that run
"""

import base64
import hashlib
import json
import os
import re

from . import adopt, archive, host_plan, kernel_packages, options, origin, package_repository, rdma, tuning
from .place import stored
from .readers.files import command

INSTALLED = "/var/lib/gpucheck/installed.json"
BASELINE = "/var/lib/gpucheck/baseline.json"
TRANSACTION = "/var/lib/gpucheck/transaction.json"
PREVIOUS = "/var/lib/gpucheck/previous-stack.json"
# The number of GPUs of a host that a run has drained and not returned to service yet.
DRAINED = "/var/lib/gpucheck/drained"
# Installed by the roles in addition to the planned packages. None is removed while the host is provisioned.
TOOLS = frozenset(["python3-venv", "python3-dnf-plugin-versionlock", "epel-release"])
# The plan names headers with their release on the EL family, and without them no module is built again. What carries
# more modules of a kernel is named by no plan.
HEADERS = re.compile(r"^linux-(headers|modules-extra)-|^kernel(-[a-z0-9]+)*-(devel|headers)")
# OFED replaces them with its own under the same names; these are not installed by gpucheck.
RDMA_LIBRARIES = {"libibverbs1", "ibverbs-providers", "libibverbs", "rdma-core"}
LARGEST_KEPT_BYTES = 1 << 20


def digest(plan):
    """SHA-256 of a plan, "" for none; the controller computes the same from its own copy."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode("utf-8")).hexdigest() if plan else ""


def planned_names(plan):
    return {row["name"] for part in host_plan.PACKAGE_COMPONENTS for row in host_plan.component(plan, part)[0]}


def planned_holds(plan):
    return {name for part in host_plan.PACKAGE_COMPONENTS for name in host_plan.component(plan, part)[1]}


def planned_paths(plan):
    """Every file that a plan puts on the host or replaces: its own ones, the sources and their keys."""
    rows = plan["files"] + tuning.wanted(plan)["files"] + options.rows(plan, "files")
    found = [row["path"] for row in rows] + archive.paths(plan)
    for repository in package_repository.planned(plan):
        found += package_repository.all_paths(repository)
    return found + adopt.noted(plan, stored(BASELINE))


def added(packages, recorded, *, replaced=False):
    """Return installed packages of completed runs and of an interrupted one. replaced: also what OFED replaced."""
    record, pending = stored(INSTALLED), stored(TRANSACTION)
    # Before packages were recorded individually, only the planned ones were known to be installed by gpucheck.
    names = set(record.get("added", planned_names(recorded) if recorded else ()))
    if pending:
        names |= set(packages) - set(pending["packages"])
    return names & (set(packages) - (RDMA_LIBRARIES if rdma.ofed(packages) and not replaced else set()))


def relations(family):
    """(needs, provides): by package name the words it depends on; by word the packages that provide it."""
    return dpkg_relations() if family == "dpkg" else rpm_relations()


def dpkg_relations():
    """The relations of every package that dpkg knows. Of alternatives all count: rather keep one too many."""
    layout = "${Package}\t${Pre-Depends}, ${Depends}\t${Provides}\n"
    needs, provides = {}, {}
    for line in command(["dpkg-query", "-W", "-f", layout]).splitlines():
        name, wanted, given = line.split("\t")
        needs.setdefault(name, set()).update(words(wanted))
        for word in words(given) | {name}:
            provides.setdefault(word, set()).add(name)
    return needs, provides


def words(relation):
    """The bare names of a dpkg relation: ``a (= 1), b:any | c`` gives a, b, c."""
    return {re.split(r"[\s(:]", part.strip())[0] for part in re.split(r"[,|]", relation) if part.strip()}


def rpm_relations():
    layout = "N%{NAME}\n[R%{REQUIRENAME}\n][P%{PROVIDENAME}\n]"
    needs, provides, name = {}, {}, ""
    for line in command(["rpm", "-qa", "--qf", layout]).splitlines():
        kind, word = line[:1], line[1:]
        if kind == "N":
            name = word
            needs.setdefault(name, set())
            provides.setdefault(name, set()).add(name)
        elif kind == "R":
            needs[name].add(word)
        elif kind == "P":
            provides.setdefault(word, set()).add(name)
    return needs, provides


def closure(roots, following):
    """The roots, and all names that ``following`` gives for one of them, for one of those, and so on."""
    seen, todo = set(), list(roots)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(following(name))
    return seen


def reachable(roots, needs, provides):
    return closure(roots, lambda name: {one for word in needs.get(name, ()) for one in provides.get(word, ())})


def own_driver(packages):
    names = [name for name in origin.drivers(stored(INSTALLED).get("packages", {})) if name in packages]
    words = (
        f"driver: keep is set in stack.yml, but gpucheck installed the driver of this host ({', '.join(names)}). State "
        "that driver in stack.yml, or run make deprovision for this host first"
    )
    return [words] if names else []


def leftovers(plan, packages, family, recorded):
    """Packages that we brought and that neither the plan nor any other package on the host needs."""
    managed = added(packages, recorded)
    if not managed:
        return []
    wanted = planned_names(plan) | set(plan.get("prerequisites") or []) | set(plan.get("compilers") or [])
    if plan["components"]:
        wanted |= (
            TOOLS
            | {name for name in packages if HEADERS.search(name)}
            | set(kernel_packages.modules_kept(plan, packages))
        )
    return sorted(managed - reachable((set(packages) - managed) | wanted, *relations(family)))


def unplanned(plan, packages, holds):
    """Our packages that the plan no longer has, and those of them that are held.

    A resolver takes no held package away for another. A hold outlives its package.
    """
    managed = added(packages, host_plan.recorded_plan()) - planned_holds(plan) - host_plan.along(plan, packages)
    # They are held with the kernel, and planned by no name.
    managed -= set(kernel_packages.modules_installed(plan, packages))
    return {"installed": sorted(managed), "held": sorted(managed & set(holds))}


def left_files(plan):
    return sorted(set(stored(INSTALLED).get("paths", [])) - set(planned_paths(plan)))


def left_locks(plan, locks, lock_name, packages=None):
    """Version locks that we set for packages that are not planned any more. lock_name: from an entry to its package."""
    managed = set(stored(INSTALLED).get("holds", [])) - planned_holds(plan) - host_plan.along(plan, packages or {})
    return [entry for entry in locks if lock_name(entry) in managed]


def differences(plan, packages):
    """Words for what an earlier plan brought and this one leaves out, and for a run that was cut off."""
    found = []
    for name, version in sorted(stored(INSTALLED).get("packages", {}).items()):
        if name in packages and name not in planned_names(plan):
            found.append(f"{name} {packages[name] or version} is no longer planned")
    found += [f"{path} is no longer planned" for path in left_files(plan)]
    if os.path.exists(TRANSACTION):
        found.append("an earlier run was interrupted before it was recorded")
    return found


def kept(path):
    """Return a file's content and mode, to restore it; None if it is missing. Too large a file is not managed."""
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST_KEPT_BYTES)
        return {"content": base64.b64encode(content).decode("ascii"), "mode": os.stat(path).st_mode & 0o7777}
    except OSError:
        return None


def same_set(one, other):
    """Whether two plans install the same: a reason in other words is no step that could be rolled back."""
    keys = ("components", "module_stream", "expected")
    stacks = [{part: plan["stack"].get(part) for part in ("torch", "tensorflow")} for plan in (one, other)]
    return all(one[key] == other[key] for key in keys) and stacks[0] == stacks[1]


def way_back(recorded):
    """The plan to roll back to: the last finished one where a run was cut off, else the one before it; None: none."""
    cut_off = recorded and os.path.exists(TRANSACTION)
    return recorded if cut_off else stored(PREVIOUS) or None
