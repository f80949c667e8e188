"""The plan's kernel lock: which packages it holds, which holds are managed, and what is to be set or lifted.

kernel-lock.json names the holds that we set, written before they are set: a run that is cut off loses none of them, and
holds that existed before are never in it.
"""

import re

from . import kernel_packages
from .host import lock_name
from .host_plan import normal_lock
from .place import stored

NOTE = "/var/lib/gpucheck/kernel-lock.json"
# Images, headers and modules of every release, and the metapackages that move them. Not NVIDIA's modules that are built
# for a kernel (linux-modules-nvidia-580-...), which are a driver.
DEB = re.compile(
    r"^linux-(image|headers|modules)-(?!nvidia-\d)"
    r"|^linux-(generic|virtual|lowlatency|realtime|aws|azure|gcp|gke|gkeop|ibm|oracle|oem|kvm|nvidia)(-|$)"
)
RPM = re.compile(
    r"^kernel(?P<flavour>(-uek|-rt|-64k)*)"
    r"(-(?P<part>core|modules|modules-core|modules-extra|devel|devel-matched|headers))?$"
)
HEADERS = ("devel", "devel-matched", "headers")


def noted():
    return sorted(stored(NOTE).get("holds", []))


def wanted_deb(packages):
    return sorted(name for name in packages if DEB.search(name))


def wanted_rpm(kernels):
    """Lock entries for the installed kernel packages. kernels: by name every installed version.

    A lock of kernel-devel keeps every other version of it out: headers are locked to the version of each installed
    kernel, so that the driver's are to be had also for a kernel that has none yet.
    """
    found = []
    for name in sorted(kernels):
        part = RPM.match(name)
        if part is None:
            continue
        versions = set(kernels[name])
        if part.group("part") in HEADERS:
            base = "kernel" + part.group("flavour")
            versions.update(kernels.get(base, []), kernels.get(base + "-core", []))
        found += [f"{name}-{version}.*" for version in sorted(versions)]
    return found


def state(plan, holds, extras, managed):
    """Return what the role acts on: holds to set (missing), holds to lift, and managed ones afterwards, for the note.

    holds: held package names. managed: of ``noted``. Other holds are left unmanaged, at their version.
    """
    requested = plan.get("kernel_lock") == "hold"
    if plan["package_manager"] == "apt":
        # Modules of the driver that are built for a kernel may move only with it.
        modules = kernel_packages.modules_installed(plan, extras["packages"])
        wanted = sorted(wanted_deb(extras["packages"]) + modules) if requested else []
        missing = [name for name in wanted if name not in holds]
        present = [name for name in managed if name in holds]
        lifted = [name for name in present if name not in wanted]
    else:
        wanted = wanted_rpm(extras["kernels"]) if requested else []
        good, mine = {normal_lock(entry) for entry in wanted}, {normal_lock(entry) for entry in managed}
        known = {normal_lock(entry) for entry in extras["locks"]}
        foreign = {lock_name(entry) for entry in extras["locks"] if normal_lock(entry) not in mine}
        missing = [one for one in wanted if normal_lock(one) not in known and lock_name(one) not in foreign]
        present = [entry for entry in extras["locks"] if normal_lock(entry) in mine]
        lifted = [entry for entry in present if normal_lock(entry) not in good]
    kept = [entry for entry in present if entry not in lifted]
    return {"missing": missing, "lifted": lifted, "kept": sorted(set(kept + missing))}


def differences(seen, managed):
    """Return messages for what is not as planned. seen: of ``state``; managed: of ``noted``."""
    words = [f"{entry} is not held" for entry in seen["missing"]]
    words += [f"{entry} is held by gpucheck, not planned" for entry in seen["lifted"]]
    if not words and seen["kept"] != managed:
        words.append("the record of kernel holds names some that do not exist")
    return words
