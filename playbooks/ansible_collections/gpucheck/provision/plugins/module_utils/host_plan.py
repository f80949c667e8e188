"""Compare a host with its plan: what is not yet as planned, as text and as data for the roles.

Pure functions of what was read, but for the small files and systemd states that only a plan can name.
"""

import glob
import json
import os
import re
import shutil

from . import running
from .host import image, lock_name
from .kernel_packages import headers_missing, later_kernels, modules_for
from .origin import NAMES
from .readers.files import text
from .readers.packages import upstream

OPTIONS = ("dcgm", "acs")
PACKAGE_COMPONENTS = ("driver", "fabric_manager", "cuda", "cudnn", "nccl", "container_toolkit", *OPTIONS)
STACK_FILE = "/etc/gpucheck/stack.json"
MARKER = "/opt/gpucheck/requirements.sha256"
# Survives a reboot: the initramfs is older than a module file until it was rebuilt.
INITRAMFS_PENDING = "/var/lib/gpucheck/initramfs-pending"
# What a host keeps of the bundle that it installs from.
BUNDLE_PLACE = "/var/lib/gpucheck/bundle"
# Lives in /run, so that the reboot it asks for is what removes it.
REBOOT_REQUIRED = "/run/gpucheck/reboot-required"
MODULES_D = "/etc/dnf/modules.d"
VERSIONLOCK_PLUGIN = "/usr/lib/python3*/*-packages/dnf-plugins/versionlock.py"
REBUILD_INITRAMFS = {"dpkg": ["update-initramfs", "-u", "-k", "all"], "rpm": ["dracut", "--force", "--regenerate-all"]}
BUILD_AGAIN = {
    "apt": ["dpkg-reconfigure", "--frontend", "noninteractive"],
    "dnf": ["dnf", "--assumeyes", "--quiet", "reinstall"],
}
DRIVER_FAMILY = re.compile(r"^(lib)?nvidia|^kmod-nvidia|^xserver-xorg-video-nvidia")
MODULE_PACKAGE = re.compile(r"^kmod-nvidia|^nvidia-(kernel-)?(open-)?dkms|^nvidia-kernel-.*dkms")
DRIVER_VERSION = re.compile(r"^\d{3}\.\d{2,3}(\.\d+)?$")


def component(plan, name):
    found = plan["components"].get(name) or {}
    return found.get("packages") or [], found.get("holds") or []


def keeps_driver(plan):
    """Whether the driver of the host is kept: nothing of it is compared or changed."""
    return bool(((plan.get("stack") or {}).get("driver") or {}).get("kept"))


def package_differences(plan, name, packages):
    """Packages of one component that are not installed in exactly the planned version."""
    words = []
    for package in component(plan, name)[0]:
        seen = packages.get(package["name"])
        if seen is None:
            words.append("{} {} is not installed".format(package["name"], package["version"] or "(newest)"))
        elif package["version"] not in (None, seen):
            words.append("{} is {}, planned {}".format(package["name"], seen, package["version"]))
    return words


def lock_entries(plan, name, packages, locks):
    """(missing, stale): raw versionlock entries to add, and entries of the same packages for another version."""
    # A version of None means the newest: what is installed is what gets locked.
    planned = {row["name"]: row["version"] or packages.get(row["name"]) for row in component(plan, name)[0]}
    holds = [hold for hold in component(plan, name)[1] if planned.get(hold)]
    wanted = ["{}-{}.*".format(held, planned[held]) for held in holds]
    # dnf writes epoch 0 and rpm omits it; both mean the same package.
    known = {normal_lock(entry) for entry in locks}
    missing = [entry for entry in wanted if normal_lock(entry) not in known]
    good = {normal_lock(entry) for entry in wanted}
    stale = [entry for entry in locks if lock_name(entry) in planned and normal_lock(entry) not in good]
    return missing, stale


def normal_lock(entry):
    """(name, version, release) without an epoch of 0."""
    name, version, release = entry.rsplit("-", 2)
    return name, version[2:] if version.startswith("0:") else version, release


def hold_differences(plan, name, packages, held, locks):
    """(words, missing, stale) for the holds of one component; missing holds names (apt) or raw entries (dnf)."""
    if plan["package_manager"] == "apt":
        missing = [hold for hold in component(plan, name)[1] if hold not in held]
        return ["{} is not held".format(hold) for hold in missing], missing, []
    missing, stale = lock_entries(plan, name, packages, locks)
    words = ["{} is not version-locked".format(lock_name(entry)) for entry in missing]
    words += ["{} is a stale version lock".format(entry) for entry in stale]
    return words, missing, stale


def superfluous(plan, doubled):
    """``name-version`` of every version to be erased of packages that are installed twice.

    The planned version stays, for what came along with the driver the one of the planned driver, else the newest.
    """
    planned = {row["name"]: row["version"] for part in PACKAGE_COMPONENTS for row in component(plan, part)[0]}
    expected = plan["expected"]["driver_version"]
    found = []
    for name, versions in sorted(doubled.items()):
        fitting = [version for version in versions if planned.get(name) in (version, normal_epoch(version))]
        if not fitting and DRIVER_FAMILY.search(name):
            fitting = [version for version in versions if upstream(version) == expected]
        keep = (fitting or versions)[-1]
        found += ["{}-{}".format(name, version) for version in versions if version != keep]
    return found


def normal_epoch(version):
    return version[2:] if version.startswith("0:") else version


def strays(plan, packages):
    """Driver packages, planned or pulled in, that are of another driver version than the plan's."""
    planned = {row["name"] for part in PACKAGE_COMPONENTS for row in component(plan, part)[0]}
    expected = plan["expected"]["driver_version"]
    found = []
    for name, version in sorted(packages.items()):
        seen = upstream(version)
        if name not in planned and DRIVER_FAMILY.search(name) and DRIVER_VERSION.match(seen) and seen != expected:
            found.append("{} {}".format(name, version))
    return found


def same_file(path, content, mode):
    try:
        if os.stat(path).st_mode & 0o7777 != int(mode, 8):
            return False
        with open(path, "rb") as file:
            return file.read() == content.encode("utf-8")
    except OSError:
        return False


def wrong_files(plan):
    return [row["path"] for row in plan["files"] if not same_file(row["path"], row["content"], row["mode"])]


def initramfs_files(plan):
    """Those of the wrong files that the initramfs carries a copy of."""
    wrong = wrong_files(plan)
    return [row["path"] for row in plan["files"] if row["initramfs"] and row["path"] in wrong]


def build_again(plan, kernel):
    """Return the commands with which the packages' own scripts rebuild the kernel module, or link a prebuilt one."""
    prebuilt = modules_for(plan, kernel)
    names = [row["name"] for row in component(plan, "driver")[0] if MODULE_PACKAGE.search(row["name"])]
    names = [prebuilt] if prebuilt else names
    if image() and not prebuilt:
        return ["dkms", "autoinstall", "--kernelver", kernel]
    return BUILD_AGAIN[plan["package_manager"]] + names


def enabled_stream(module):
    """The enabled stream of a dnf module from dnf's own state, None where none is enabled."""
    inside = False
    stream, state = None, None
    for line in (text(os.path.join(MODULES_D, module + ".module")) or "").splitlines():
        line = line.strip()
        if line.startswith("["):
            inside = line == "[{}]".format(module)
        key, _, value = line.partition("=")
        if inside and key.strip() == "stream":
            stream = value.strip() or None
        if inside and key.strip() == "state":
            state = value.strip()
    return stream if state == "enabled" else None


def reboot_reasons(plan, facts):
    rules = [] if image() else plan["reboot"]["when"]
    driver = facts["driver"]
    reasons = []
    if "nouveau-loaded" in rules and facts["nouveau_loaded"]:
        reasons.append("nouveau is loaded and uses the GPUs")
    if "loaded-differs-from-installed" in rules and driver["loaded_version"]:
        loaded = (driver["loaded_version"], driver["loaded_flavour"])
        installed = (driver["installed_version"] or loaded[0], driver["installed_flavour"] or loaded[1])
        if loaded != installed:
            reasons.append("the loaded module is {} {}, the installed one {} {}".format(*(loaded + installed)))
    pending = text(REBOOT_REQUIRED)
    if "module-files-changed" in rules and pending is not None:
        reasons.append(pending or "a module file changed since the last boot")
    return reasons


def loaded_differences(plan, facts):
    expected, driver = plan["expected"], facts["driver"]
    if driver["installed_version"] is None:
        return [
            "no nvidia module is built for kernel {}, planned {}".format(facts["kernel"], expected["driver_version"])
        ]
    if image():
        driver = {"loaded_version": driver["installed_version"], "loaded_flavour": driver["installed_flavour"]}
    if driver["loaded_version"] is None:
        return ["no nvidia module is loaded, planned {driver_version} {kernel_module}".format(**expected)]
    seen = "{loaded_version} {loaded_flavour}".format(**driver)
    wanted = "{driver_version} {kernel_module}".format(**expected)
    return [] if seen == wanted else ["the loaded module is {}, planned {}".format(seen, wanted)]


def versionlock_available():
    return bool(glob.glob(VERSIONLOCK_PLUGIN))


def kernels_without_module(plan, facts):
    """Newer kernels for which DKMS has not built the planned driver, though it has for others and headers are there."""
    built = facts["dkms"].get(plan["expected"]["driver_version"])
    if not built:
        return []
    return [release for release in later_kernels(facts) if release in facts["headers"] and release not in built]


def prerequisites_missing(plan, packages):
    """Packages to try before the driver's own transaction, such as the release package of a repository with dkms.

    Not a difference: a site's mirror may carry dkms itself.
    """
    return [name for name in plan.get("prerequisites") or [] if name not in packages]


def compilers_missing(plan, packages):
    return [name for name in plan.get("compilers") or [] if name not in packages]


def initramfs(family):
    """(words, images): what rebuilds every initramfs here, empty where nothing can; whether the host boots with one."""
    program, *words = REBUILD_INITRAMFS[family]
    found = shutil.which(program)
    images = bool(glob.glob("/boot/initr*") + glob.glob("/boot/*/*/initrd"))
    return [found, *words] if found else [], images


def driver_differences(plan, facts, packages):
    """Everything of the driver but its packages, holds and services: module, files, tools."""
    needed = headers_missing(plan, facts, packages) + compilers_missing(plan, packages)
    words = ["{} is needed to build the module".format(name) for name in needed]
    built = "no module is built for kernel {}, which the next boot may start"
    words += [built.format(release) for release in kernels_without_module(plan, facts)]
    words += ["{} is missing or different".format(path) for path in wrong_files(plan)]
    words += running.not_in_force(plan) + loaded_differences(plan, facts)
    words += ["{} is of another driver version".format(stray) for stray in strays(plan, packages)]
    if shutil.which("nvidia-smi") is None:
        words.append("nvidia-smi is missing")
    if os.path.exists(INITRAMFS_PENDING):
        words.append("the initramfs is older than the module files")
    return words + ["reboot needed: " + reason for reason in reboot_reasons(plan, facts)]


def recorded_plan(path=STACK_FILE):
    """Return the recorded plan of an earlier run, None if it is missing or unreadable."""
    try:
        return json.loads(text(path) or "null")
    except (ValueError, RecursionError):
        return None


def gpucheck_differences(plan, digest):
    """Compare gpucheck itself: the requirement set it was installed from, and the plan it evaluates by."""
    words = []
    if digest and text(MARKER) != digest:
        words.append("gpucheck is not installed from the planned requirement set")
    if recorded_plan() != plan:
        words.append("{} does not contain this plan".format(STACK_FILE))
    return words


# What came along with a component, as its dependency, may move only with it, and is held as well. A metapackage depends
# on its packages with ">=", so without a hold those of the toolkit move within 13.0 by themselves. On apt, the planned
# preferences keep the driver's own together; on dnf nothing does, and "dnf upgrade" would end in conflicts.
TOOLKIT = re.compile(r"^cuda-toolkit(-\d+-\d+)$")
CONFIGURATION = re.compile(r"^cuda-toolkit(-[\d-]+)?-config-common$")


def belonging(plan, name):
    """Whether a package name, with its version, is of those that come along with a component; None if none are."""
    rows = [row for part in PACKAGE_COMPONENTS for row in component(plan, part)[0]]
    planned = {row["name"] for row in rows}
    if name == "driver" and plan.get("package_manager") == "dnf" and component(plan, name)[0]:
        return lambda other, version: (
            other not in planned and DRIVER_FAMILY.search(other) and DRIVER_VERSION.match(upstream(version))
        )
    toolkits = [TOOLKIT.match(row["name"]) for row in component(plan, name)[0]] if name == "cuda" else []
    suffixes = tuple(found.group(1) for found in toolkits if found)
    if not suffixes:
        return None
    return lambda other, _: (
        other not in planned and (CONFIGURATION.search(other) or (other.endswith(suffixes) and NAMES.search(other)))
    )


def along(plan, packages, components=PACKAGE_COMPONENTS):
    """Installed packages that came along with these components; of the driver's those at its planned version."""
    found = set()
    for name in components:
        belongs = belonging(plan, name)
        for other, version in packages.items() if belongs else ():
            due = name != "driver" or upstream(version) == plan["expected"]["driver_version"]
            if due and belongs(other, version):
                found.add(other)
    return found


def along_holds(plan, name, packages, held, locks):
    """(words, missing, stale) of what came along with a component, as hold_differences has them.

    While the component itself is about to change, its holds are stale: the resolvers move no held dependency.
    """
    found = sorted(along(plan, packages, [name]))
    changing = bool(package_differences(plan, name, packages))
    if plan["package_manager"] == "apt":
        missing = [other for other in found if other not in held]
        return along_words(name, missing, changing), missing, [other for other in found if other in held and changing]
    missing, stale = along_locks(plan, name, packages, locks, changing)
    return along_words(name, missing, changing), missing, stale


def along_words(name, missing, changing):
    """Return one message for all: a toolkit has some sixty packages. None while their component changes."""
    words = "{} packages installed with {} are not held at their version".format(len(missing), name)
    return [words] if missing and not changing else []


def along_locks(plan, name, packages, locks, changing):
    """(missing, stale) entries of what came along with a component."""
    belongs = belonging(plan, name)
    if belongs is None:
        return [], []
    mine = [entry for entry in locks if belongs(lock_name(entry), entry[len(lock_name(entry)) + 1 :])]
    if changing:
        return [], mine
    wanted = ["{}-{}.*".format(other, packages[other]) for other in sorted(along(plan, packages, [name]))]
    good, known = ({normal_lock(entry) for entry in entries} for entries in (wanted, locks))
    missing = [entry for entry in wanted if normal_lock(entry) not in known]
    return missing, [entry for entry in mine if normal_lock(entry) not in good]
