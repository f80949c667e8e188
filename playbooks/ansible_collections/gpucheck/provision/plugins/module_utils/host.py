"""What our modules read on a GPU host: PCI and module state from sysfs, packages, holds, kernels."""

import glob
import json
import os
import platform
import re
import shutil
import sys

from . import origin, rdma, safety
from .openpgp import rpm_fingerprints
from .readers import driver as module
from .readers import packages as installed
from .readers.files import Unreadable, command, hex_id, text
from .readers.kernels import release_key, secure_boot_variable
from .readers.packages import upstream, version_locks
from .readers.pci import NVIDIA, functions
from .readers.system import os_release, package_family

SIMULATOR = "/run/gpucheck-simulator"
PLATFORM_PYTHON = "/usr/libexec/platform-python"
# The module; of its successor, which is loaded for every GPU and takes some, a GPU that it has.
NOUVEAU = ("sys/module/nouveau", "sys/bus/pci/drivers/[Nn]ova*/*:*:*")
OF_INTEREST = re.compile(
    r"nvidia|cuda|cudnn|nccl|^datacenter-gpu-manager|^gdr(copy|drv)|^libgdrapi|linux-headers|kernel-(uek-)?devel"
)


def image():
    """Whether this is an image: a chroot, container or builder. Nothing of the plan runs before its first boot."""
    return bool(os.environ.get("GPUCHECK_IMAGE"))


def kernel_of(root):
    """The release of the running kernel; of an image that of its newest one. Raises Unreadable for an image without."""
    if not image():
        return text(os.path.join(root, "proc/sys/kernel/osrelease")) or os.uname().release
    releases = safety.kernels()
    if not releases:
        raise Unreadable("no kernel is installed in this image (/lib/modules): install it first")
    return max(releases, key=release_key)


def simulation(directory=SIMULATOR):
    """The simulated machine's description, None on real hardware."""
    path = os.path.join(directory, "simulation.json")
    try:
        with open(path, "rb") as file:
            return json.loads(file.read().decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        # Taken for real hardware, a simulated machine that may not be read would lose its mark.
        raise Unreadable(f"{path}: {error}")


def dpkg_packages():
    """(packages, holds, unfinished): name -> full version, held names, names of a transaction that was cut off."""
    packages, holds, unfinished = {}, set(), []
    for row in installed.dpkg_rows(command(["dpkg-query", "-W", "-f", installed.DPKG_FORMAT])):
        if row.unfinished:
            unfinished.append(row.name)
        # A second architecture (i386 libraries) comes after the native one and must not hide it.
        if row.installed and row.name not in packages:
            packages[row.name] = row.version
        if row.held:
            holds.add(row.name)
    return packages, sorted(holds), unfinished


def rpm_packages():
    """(packages, doubled, kernels): name -> [epoch:]version-release; name -> versions of packages that are there twice,
    and of all kernel packages, oldest installation first.

    An interrupted transaction keeps the old version in the database in addition to the new one. Kernels are to be
    there in several versions.
    """
    layout = "%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\t%{INSTALLTIME}\t%{ARCH}\n"
    seen = {}
    for line in command(["rpm", "-qa", "--qf", layout]).splitlines():
        name, version, time, arch = line.split("\t")
        if name != "gpg-pubkey":
            seen.setdefault((name, arch), []).append((int(time), version))
    packages, doubled, kernels = {}, {}, {}
    for (name, _), found in sorted(seen.items()):
        versions = [version for _, version in sorted(found)]
        packages[name] = versions[-1]
        if name.startswith("kernel"):
            kernels[name] = versions
        elif len(versions) > 1:
            doubled[name] = versions
    return packages, doubled, kernels


def rpm_keys():
    return sorted(rpm_fingerprints(command(["rpm", "-qa", "gpg-pubkey", "--qf", "%{DESCRIPTION}\n"])))


def lock_name(entry):
    """The package name of one versionlock entry such as ``name-3:1.2-1.el9.*``."""
    return entry.lstrip("!").rsplit("-", 2)[0]


def pci_devices(root):
    """By vendor, NVIDIA's and Mellanox' PCI functions as (bus id, class, device id, subsystem), ordered by bus id."""
    found = {NVIDIA: [], rdma.MELLANOX: []}
    for one in functions(root):
        if one.vendor in found:
            names = ("device", "subsystem_vendor", "subsystem_device")
            device, vendor, subsystem = (hex_id(text(os.path.join(one.folder, name))) for name in names)
            whole = f"{vendor}:{subsystem}" if vendor and subsystem else ""
            found[one.vendor].append((one.bus_id, one.class_id, device, whole))
    return found


def driver(root, kernel, packages):
    """The contract's ``driver`` object: what is loaded, and what the next load would give."""
    loaded, flavour = (None, None) if image() else module.loaded_module(root)
    # Without modinfo nothing loads modules here, and the package is all there is to go by.
    version, next_flavour = module_file(root, kernel) if shutil.which("modinfo") else packaged_module(packages)
    return {
        "loaded_version": loaded,
        "loaded_flavour": None if loaded is None else flavour or "proprietary",
        "installed_version": version,
        "installed_flavour": next_flavour,
    }


def module_file(root, kernel):
    """(version, flavour) of the nvidia module that this kernel would load, (None, None) where there is none."""
    version, licence = module.modinfo(kernel, root)
    return version, module.flavour_of_license(licence)


def packaged_module(packages):
    """(version, flavour) of the installed kernel module package, for hosts where modinfo finds no module."""
    for name in sorted(packages):
        if name.startswith(("nvidia-dkms", "kmod-nvidia", "nvidia-kernel-open-dkms")):
            return upstream(packages[name]), "open" if "-open" in name else "proprietary"
    return None, None


def kernels_with_headers(root="/"):
    """Return kernel releases with headers, for which DKMS can build. An empty directory does not count."""
    releases = set()
    for path in glob.glob(os.path.join(root, "lib/modules/*/build/Makefile")):
        releases.add(path.split("/")[-3])
    for path in glob.glob(os.path.join(root, "usr/src/linux-headers-*/Makefile")):
        releases.add(path.split("/")[-2][len("linux-headers-") :])
    for path in glob.glob(os.path.join(root, "usr/src/kernels/*/Makefile")):
        releases.add(path.split("/")[-2])
    return sorted(releases)


def secure_boot(root):
    """True or False, None where the firmware has the variable and would not show it."""
    return secure_boot_variable(root) if os.path.isdir(os.path.join(root, "sys/firmware/efi")) else False


def python3():
    """Version of the python3 on the host's PATH, "" without one; Ansible's own interpreter may be another."""
    found = shutil.which("python3")
    if found is None:
        return ""
    if os.path.realpath(found) == os.path.realpath(sys.executable):
        return platform.python_version()
    return command([found, "-c", "import platform; print(platform.python_version())"]).strip()


def platform_python(path=PLATFORM_PYTHON):
    """Version, such as 3.6, of the Python that dnf itself runs in, "" where there is none apart."""
    found = re.search(r"python(\d+\.\d+)$", os.path.realpath(path))
    return found.group(1) if found and os.path.exists(path) else ""


def read_facts(host, simulator=SIMULATOR):
    """(facts, extras): the contract's facts document (gpucheck.facts/1), and what only this collection needs."""
    simulated = simulation(simulator)
    root = os.path.join(simulator, "root") if simulated is not None else "/"
    release = os_release()
    name, family = release.get("ID", "unknown"), package_family(release)
    keys, unfinished, locks, doubled, kernels = [], [], [], {}, {}
    if family == "dpkg":
        everything, holds, unfinished = dpkg_packages()
    else:
        (everything, doubled, kernels), keys = rpm_packages(), rpm_keys()
        unfinished = sorted(doubled)
        locks = version_locks()
        holds = sorted({lock_name(entry) for entry in locks})
    kernel = kernel_of(root)
    vendors = pci_devices(root)
    devices = vendors[NVIDIA]
    gpus = [row for row in devices if row[1][:4] in ("0300", "0302")]
    made = origin.by_source(everything, family)
    others, distributions = made["other"], made["distribution"]
    if simulated is None:
        others += origin.without_package(everything, safety.dkms(), kernel)
    facts = {
        "schema": "gpucheck.facts/1",
        "host": host,
        "os": {"id": name, "version": release.get("VERSION_ID", ""), "name": release.get("PRETTY_NAME", name)},
        "arch": os.uname().machine,
        "kernel": kernel,
        "simulated": simulated is not None,
        "stand_ins": list((simulated or {}).get("stand_ins", [])),
        "gpus": [{"bus_id": bus, "device_id": device, "subsystem_id": subsystem} for bus, _, device, subsystem in gpus],
        "nvswitches": sum(kind[:4] == "0680" for _, kind, _, _ in devices),
        "rdma": rdma.cards(vendors[rdma.MELLANOX]),
        "ofed": rdma.ofed(everything),
        "ofed_built": rdma.ofed_is_built(kernel),
        "driver": driver(root, kernel, everything),
        "nouveau_loaded": not image() and any(glob.glob(os.path.join(root, place)) for place in NOUVEAU),
        "secure_boot": False if image() else secure_boot(root),
        "kernels": safety.kernels(),
        "headers": kernels_with_headers(),
        "dkms": safety.dkms(),
        "vgpu_guest": safety.vgpu_guest(root, [row[0] for row in gpus]),
        "processes": [] if image() else safety.processes(),
        "foreign": others + distributions,
        "packages": {name: everything[name] for name in sorted(everything) if OF_INTEREST.search(name)},
        "holds": holds,
        "python3": python3(),
    }
    extras = {"packages": everything, "keys": keys, "unfinished": unfinished, "locks": locks, "family": family}
    extras.update(doubled=doubled, kernels=kernels, modules=rdma.loaded_modules(root))
    extras.update(of_distribution=distributions, of_nvidia=made["nvidia"], managed=origin.managed())
    return facts, extras
