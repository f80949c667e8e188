"""DKMS: where it comes from if the host's own sources lack it, and a build of the planned module before the drain.

It comes from the plan's repository, for what that may supply alone. The build uses the downloaded packages, in a folder
of its own.
"""

import glob
import os
import re
import shutil
import tempfile

from . import kept, package_repository, place, signing_keys
from .call import STOPPED, Refused, attempt, call, last_words
from .host_plan import BUNDLE_PLACE
from .kernel_packages import later_kernels
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
    return [f"--setopt={name}.{word}" for name in names for word in ("enabled=1", "skip_if_unavailable=1")]


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
        reason = str(error).rstrip(".")
        raise Refused(
            f"No source of this host offers {', '.join(row['include'])}, and repository {row['name']} of the plan "
            f"cannot be read: {reason}. Set repositories: epel in stack.yml to a mirror of it, or to none if your own "
            "sources will have the package"
        )


# What has the module's sources; GPUDirect Storage is built after the driver is there.
SOURCES = re.compile(r"^(kmod-)?nvidia-(?!fs).*(dkms|kernel.*-source)")
FOLDER = "/var/tmp"  # noqa: S108 - on a disk; the folder below it is made by mkdtemp
# The open modules take 2 GB while they are built, and a quarter of an hour on one core.
SPACE_BYTES, DEADLINE_S = 4 << 30, 3000
UNPACK = {
    "apt": ["dpkg-deb", "--extract"],
    "dnf": ["sh", "-c", 'cd "$2" && rpm2cpio "$1" | cpio --quiet -idm', "unpack"],
}
# Jobs run meanwhile. Without a program to sign with, DKMS makes no key for Secure Boot and asks to enroll none.
QUIETLY = ["env", "sign_file=/dev/null", "nice", "-n", "19", "timeout", "--kill-after=30", str(DEADLINE_S)]
WRONG = re.compile(r"\berror\b|fatal|undefined|No such file", re.IGNORECASE)
MOST_WRONG = 4


def arriving(moves):
    """{name: version} of the packages with the module's sources that a transaction brings."""
    return {row.name: row.version for row in moves if row.verb != "remove" and SOURCES.search(row.name)}


def package_files(found):
    bundle = [os.path.join(BUNDLE_PLACE, "**", kind) for kind in ("*.deb", "*.rpm")]
    there = kept.files(os.path.join(kept.FOLDER, "*", "*"), *bundle, *kept.CACHES)
    keys = [(name, kept.without_epoch(version)) for name, version in found.items()]
    return sorted(there[key] for key in keys if key in there)


def obstacle(facts, order):
    if shutil.which("dkms") is None:
        return "DKMS is not installed yet"
    if order["compilers"]:
        return "{} is not installed yet".format(", ".join(order["compilers"]))
    if facts["kernel"] not in facts["headers"]:
        return "the headers of kernel {} are not installed yet".format(facts["kernel"])
    space = os.statvfs(FOLDER)
    if space.f_bavail * space.f_frsize < SPACE_BYTES:
        return f"{FOLDER} has less than {SPACE_BYTES >> 30} GiB"
    return ""


def try_out(module, order, moves, facts):
    """Return why the module was not built beforehand, nothing if it was or if no source changes. Raises Refused.

    For the running kernel, and for later ones with headers, which the next boot may start.
    """
    found = arriving(moves)
    reason = obstacle(facts, order) if found else ""
    if not found or reason:
        return reason
    folder = tempfile.mkdtemp(prefix="gpucheck-build-", dir=FOLDER)
    try:
        manager = order["plan"]["package_manager"]
        for path in package_files(found):
            status, _, errors = attempt(module, [*UNPACK[manager], path, folder])
            if status:
                return f"{path} cannot be unpacked: {last_words(errors)}"
        sources = sorted(glob.glob(os.path.join(folder, "usr/src/*/dkms.conf")))
        if not sources:
            return "no package file on the host has its sources"
        kernels = [facts["kernel"], *(release for release in later_kernels(facts) if release in facts["headers"])]
        done = [build(module, folder, os.path.dirname(path), kernel) for path in sources for kernel in kernels]
        return next((words for words in done if words), "")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build(module, folder, source, kernel):
    """One build; return why it was not finished, or nothing. Raises Refused with the end of the compiler's words."""
    name, _, version = os.path.basename(source).rpartition("-")
    tree = os.path.join(folder, "dkms-" + kernel)
    os.mkdir(tree)
    words = [*QUIETLY, *(["ionice", "-c", "3"] if shutil.which("ionice") else []), "dkms", "build"]
    words += ["--dkmstree", tree, "--sourcetree", os.path.dirname(source), "-m", name, "-v", version, "-k", kernel]
    status, output, errors = attempt(module, words)
    if status in STOPPED:
        return f"it was not ready after {DEADLINE_S} s"
    if status:
        logs = sorted(glob.glob(os.path.join(tree, name, version, "**", "make.log"), recursive=True))
        lines = (text(logs[0]) or "").splitlines() if logs else []
        wrong = [line for line in lines if WRONG.search(line)][:MOST_WRONG]
        words = last_words("\n".join([*wrong, *lines[-MOST_WRONG:]]), errors + output)
        raise Refused(
            f"DKMS cannot build {name} {version} for kernel {kernel}, so no planned package was installed and the host "
            f"was not drained: {words}. Choose a driver that supports this kernel, or boot another kernel, then run "
            "again"
        )
    return ""
