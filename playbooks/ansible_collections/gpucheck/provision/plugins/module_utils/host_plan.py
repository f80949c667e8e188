"""Compare a host with its plan: what is not yet as planned, as text and as data for the roles.

Pure functions of what was read, but for the small files and systemd states that only a plan can name.
"""

import configparser
import glob
import os
import re
import shutil

from . import place, running
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
DRIVER_FAMILY = re.compile(r"^(lib)?nvidia(?!-detect)|^kmod-nvidia|^xserver-xorg-video-nvidia")
MODULE_PACKAGE = re.compile(r"^kmod-nvidia|^nvidia-(kernel-)?(open-)?dkms|^nvidia-kernel-.*dkms")
DRIVER_VERSION = re.compile(r"^\d{3}\.\d{2,3}(\.\d+)?$")


def component(plan, name):
    found = plan["components"].get(name) or {}
    return found.get("packages") or [], found.get("holds") or []


def absent(plan, part, packages):
    """Packages of this part of the plan (compilers, prerequisites) that are not installed."""
    return [name for name in plan.get(part) or [] if name not in packages]


def keeps_driver(plan):
    """Whether the driver of the host is kept: nothing of it is compared or changed."""
    return bool(((plan.get("stack") or {}).get("driver") or {}).get("kept"))


def package_differences(plan, name, packages):
    """Packages of one component that are not installed in exactly the planned version."""
    words = []
    for row in component(plan, name)[0]:
        seen = packages.get(row["name"])
        if seen is None:
            words.append(f"{row['name']} {row['version'] or '(newest)'} is not installed")
        elif row["version"] not in (None, seen):
            words.append(f"{row['name']} is {seen}, planned {row['version']}")
    return words


def normal_lock(entry):
    """(name, version, release) without an epoch of 0: dnf writes it and rpm omits it. A pattern may have fewer."""
    name, *version = entry.rsplit("-", 2)
    return (name, *map(normal_epoch, version))


def normal_epoch(version):
    return version[2:] if version.startswith("0:") else version


def lock_differences(wanted, ours, locks):
    """(missing, stale) raw version locks: wanted ones to add, and those that gpucheck set and that are not wanted."""
    good, known = ({normal_lock(entry) for entry in entries} for entries in (wanted, locks))
    missing = [entry for entry in wanted if normal_lock(entry) not in known]
    return missing, [entry for entry in ours if normal_lock(entry) not in good]


def hold_differences(plan, name, packages, held, locks):
    """(words, missing, stale) for the holds of one component; missing holds names (apt) or raw version locks (dnf)."""
    rows, holds = component(plan, name)
    if plan["package_manager"] == "apt":
        missing = [hold for hold in holds if hold not in held]
        return [f"{hold} is not held" for hold in missing], missing, []
    # A version of None means the newest: what is installed is what gets locked.
    planned = {row["name"]: row["version"] or packages.get(row["name"]) for row in rows}
    wanted = [f"{hold}-{planned[hold]}.*" for hold in holds if planned.get(hold)]
    missing, stale = lock_differences(wanted, [entry for entry in locks if lock_name(entry) in planned], locks)
    words = [f"{lock_name(entry)} is not version-locked" for entry in missing]
    return words + [f"{entry} is a stale version lock" for entry in stale], missing, stale


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
        found += [f"{name}-{version}" for version in versions if version != keep]
    return found


def strays(plan, packages):
    """Driver packages, planned or pulled in, that are of another driver version than the plan's."""
    planned = {row["name"] for part in PACKAGE_COMPONENTS for row in component(plan, part)[0]}
    expected = plan["expected"]["driver_version"]
    found = []
    for name, version in sorted(packages.items()):
        seen = upstream(version)
        if name not in planned and DRIVER_FAMILY.search(name) and DRIVER_VERSION.match(seen) and seen != expected:
            found.append(f"{name} {version}")
    return found


def same_file(path, content, mode):
    try:
        if os.stat(path).st_mode & 0o7777 != int(mode, 8):
            return False
        with open(path, "rb") as file:
            return file.read() == content.encode("utf-8")
    except OSError:
        return False


def wrong(rows):
    """Paths of the planned files that are missing or different."""
    return [row["path"] for row in rows if not same_file(row["path"], row["content"], row["mode"])]


def file_differences(rows):
    return [f"{path} is missing or different" for path in wrong(rows)]


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
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    try:
        parser.read_string(text(os.path.join(MODULES_D, module + ".module")) or "")
    except configparser.Error:
        return None
    section = parser[module] if parser.has_section(module) else {}
    return section.get("stream") or None if section.get("state") == "enabled" else None


def reboot_reasons(plan, facts):
    rules = [] if image() else plan["reboot"]["when"]
    driver = facts["driver"]
    reasons = []
    if "nouveau-loaded" in rules and facts["nouveau_loaded"]:
        reasons.append("nouveau or nova is loaded and uses the GPUs")
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
        return [f"no nvidia module is built for kernel {facts['kernel']}, planned {expected['driver_version']}"]
    if image():
        driver = {"loaded_version": driver["installed_version"], "loaded_flavour": driver["installed_flavour"]}
    if driver["loaded_version"] is None:
        return ["no nvidia module is loaded, planned {driver_version} {kernel_module}".format(**expected)]
    seen = "{loaded_version} {loaded_flavour}".format(**driver)
    wanted = "{driver_version} {kernel_module}".format(**expected)
    return [] if seen == wanted else [f"the loaded module is {seen}, planned {wanted}"]


def versionlock_available():
    return bool(glob.glob(VERSIONLOCK_PLUGIN))


def kernels_without_module(plan, facts):
    """Newer kernels for which DKMS has not built the planned driver, though it has for others and headers are there."""
    built = facts["dkms"].get(plan["expected"]["driver_version"])
    if not built:
        return []
    return [release for release in later_kernels(facts) if release in facts["headers"] and release not in built]


def initramfs(family):
    """(words, images): what rebuilds every initramfs here, empty where nothing can; whether the host boots with one."""
    program, *words = REBUILD_INITRAMFS[family]
    found = shutil.which(program)
    images = bool(glob.glob("/boot/initr*") + glob.glob("/boot/*/*/initrd"))
    return [found, *words] if found else [], images


def driver_differences(plan, facts, packages):
    """Everything of the driver but its packages, holds and services: module, files, tools."""
    needed = headers_missing(plan, facts, packages) + absent(plan, "compilers", packages)
    words = [f"{name} is needed to build the module" for name in needed]
    built = "no module is built for kernel {}, which the next boot may start"
    words += [built.format(release) for release in kernels_without_module(plan, facts)]
    words += file_differences(plan["files"])
    words += running.not_in_force(plan) + loaded_differences(plan, facts)
    words += [f"{stray} is of another driver version" for stray in strays(plan, packages)]
    if shutil.which("nvidia-smi") is None:
        words.append("nvidia-smi is missing")
    if os.path.exists(INITRAMFS_PENDING):
        words.append("the initramfs is older than the module files")
    return words + ["reboot needed: " + reason for reason in reboot_reasons(plan, facts)]


def recorded_plan():
    """Return the recorded plan of an earlier run, None if it is missing or unreadable."""
    return place.stored(STACK_FILE) or None


def gpucheck_differences(plan, digest):
    """Compare gpucheck itself: the requirement set it was installed from, and the plan it evaluates by."""
    words = []
    if digest and text(MARKER) != digest:
        words.append("gpucheck is not installed from the planned requirement set")
    if recorded_plan() != plan:
        words.append(f"{STACK_FILE} does not contain this plan")
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
    belongs, found = belonging(plan, name), sorted(along(plan, packages, [name]))
    changing = bool(package_differences(plan, name, packages))
    if plan["package_manager"] == "apt":
        missing = [other for other in found if other not in held]
        stale = [other for other in found if other in held and changing]
    else:
        ours = [entry for entry in locks if belongs and belongs(lock_name(entry), entry[len(lock_name(entry)) + 1 :])]
        wanted = [f"{other}-{packages[other]}.*" for other in found]
        missing, stale = ([], ours) if changing else lock_differences(wanted, ours, locks)
    # One message for all: a toolkit has some sixty packages.
    words = f"{len(missing)} packages installed with {name} are not held at their version"
    return [words] if missing and not changing else [], missing, stale
