"""What our modules read on a GPU host: PCI and module state from sysfs, packages, holds, kernels.

Runs on the managed host: standard library only, Python 3.6 or newer. Nothing here changes anything.
"""

import glob
import json
import os
import platform
import re
import shutil
import sys

from ansible_collections.gpucheck.provision.plugins.module_utils import origin, rdma, safety
from ansible_collections.gpucheck.provision.plugins.module_utils.files import Unreadable, command, text
from ansible_collections.gpucheck.provision.plugins.module_utils.openpgp import rpm_fingerprints

SIMULATOR = "/run/gpucheck-simulator"
NVIDIA = "10de"
PLATFORM_PYTHON = "/usr/libexec/platform-python"
VERSIONLOCK = "/etc/dnf/plugins/versionlock.list"
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
OF_INTEREST = re.compile(
    r"nvidia|cuda|cudnn|nccl|^datacenter-gpu-manager|^gdr(copy|drv)|^libgdrapi|linux-headers|kernel-(uek-)?devel"
)
# Debian's own packages name the module's file nvidia-current.ko; once loaded it is nvidia there too.
MODULE_NAMES = ("nvidia", "nvidia-current")
# dpkg's second status letter: i is installed, n and c are absent; the rest is a transaction that was cut off.
UNFINISHED = frozenset("HUFWt")


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
        raise Unreadable("{}: {}".format(path, error))


def os_release(root="/"):
    """{id, version, name, like} of /etc/os-release; like holds the ids of the families it belongs to."""
    values = {}
    content = text(os.path.join(root, "etc/os-release")) or text(os.path.join(root, "usr/lib/os-release")) or ""
    for line in content.splitlines():
        key, found, value = line.partition("=")
        if found:
            values[key.strip()] = value.strip().strip("\"'")
    name = values.get("ID", "unknown")
    return {
        "id": name,
        "version": values.get("VERSION_ID", ""),
        "name": values.get("PRETTY_NAME", name),
        "like": [name, *values.get("ID_LIKE", "").split()],
    }


def package_family(like):
    """dpkg or rpm, by the family the system says it is of: a host may carry the other family's tools too."""
    if {"rhel", "fedora", "centos", "suse"} & set(like):
        return "rpm"
    if {"debian", "ubuntu"} & set(like):
        return "dpkg"
    return "rpm" if shutil.which("rpm") and not shutil.which("dpkg-query") else "dpkg"


def dpkg_packages():
    """(packages, holds, unfinished): name -> full version, held names, names of a transaction that was cut off."""
    layout = "${db:Status-Abbrev}\t${Architecture}\t${Package}\t${Version}\n"
    packages, holds, unfinished = {}, set(), []
    for line in command(["dpkg-query", "-W", "-f", layout]).splitlines():
        status, _, name, version = line.split("\t")
        if status[1:2] in UNFINISHED or status[2:3] == "R":
            unfinished.append(name)
        # A second architecture (i386 libraries) comes after the native one and must not hide it.
        if status[1:2] == "i" and name not in packages:
            packages[name] = version
        if status[0:1] == "h":
            holds.add(name)
    return packages, sorted(holds), unfinished


def rpm_packages():
    """(packages, doubled, kernels): name -> [epoch:]version-release; name -> versions of packages that are there twice,
    and of all kernel packages, oldest installation first.

    A transaction that was cut off leaves the old version in the database beside the new one. Kernels are meant to be
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
    """Fingerprints of the keys that rpm trusts."""
    return sorted(rpm_fingerprints(command(["rpm", "-qa", "gpg-pubkey", "--qf", "%{DESCRIPTION}\n"])))


def lock_name(entry):
    """The package name of one versionlock entry such as ``name-3:1.2-1.el9.*``."""
    return entry.lstrip("!").rsplit("-", 2)[0]


def version_locks(path=VERSIONLOCK):
    """The raw entries of dnf's version lock, without comments and exclusions."""
    lines = (line.strip() for line in (text(path) or "").splitlines())
    return [line for line in lines if line and not line.startswith(("#", "!"))]


def pci_devices(root):
    """By vendor, NVIDIA's and Mellanox' PCI functions as (bus id, class, device id, subsystem), ordered by bus id."""
    folder = os.path.join(root, "sys/bus/pci/devices")
    found = {NVIDIA: [], rdma.MELLANOX: []}
    for bus_id in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        values = [
            (text(os.path.join(folder, bus_id, name)) or "").replace("0x", "").lower()
            for name in ("vendor", "class", "device", "subsystem_vendor", "subsystem_device")
        ]
        if values[0] in found:
            subsystem = "{}:{}".format(values[3], values[4]) if values[3] and values[4] else ""
            found[values[0]].append((bus_id, values[1], values[2], subsystem))
    return found


def module_file(root, kernel):
    """(version, flavour) of the nvidia module that the running kernel would load, (None, None) where there is none.

    A DKMS package installs with success and without a module when the headers are missing: only modinfo tells.
    The licence tells the flavour: the open modules are "Dual MIT/GPL".
    """
    ask = ["modinfo", "-k", kernel] + (["-b", root] if root != "/" else [])
    for name in MODULE_NAMES:
        try:
            version = command([*ask, "-F", "version", name]).strip()
            licence = command([*ask, "-F", "license", name])
        except Unreadable:
            continue
        return version or None, "open" if "MIT" in licence else "proprietary"
    return None, None


def driver(root, kernel, packages):
    """The contract's ``driver`` object: what is loaded, and what the next load would give."""
    loaded = text(os.path.join(root, "sys/module/nvidia/version"))
    told = text(os.path.join(root, "proc/driver/nvidia/version")) or ""
    # Without modinfo nothing loads modules here, and the package is all there is to go by.
    installed, flavour = module_file(root, kernel) if shutil.which("modinfo") else packaged_module(packages)
    return {
        "loaded_version": loaded,
        "loaded_flavour": None if loaded is None else "open" if "Open Kernel Module" in told else "proprietary",
        "installed_version": installed,
        "installed_flavour": flavour,
    }


def packaged_module(packages):
    """(version, flavour) of the installed kernel module package, for hosts where modinfo finds no module."""
    for name in sorted(packages):
        if name.startswith(("nvidia-dkms", "kmod-nvidia", "nvidia-kernel-open-dkms")):
            return upstream(packages[name]), "open" if "-open" in name else "proprietary"
    return None, None


def upstream(version):
    """The upstream part of a full package version: no epoch, no revision."""
    return version.split(":")[-1].split("-")[0]


def kernels_with_headers(root="/"):
    """Kernel releases whose headers are there, so that DKMS can build for them. An emptied folder of theirs is none."""
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
    if not os.path.isdir(os.path.join(root, "sys/firmware/efi")):
        return False
    try:
        with open(os.path.join(root, SECURE_BOOT), "rb") as variable:
            return variable.read()[-1:] == b"\x01"
    except OSError:
        return None


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
    """The contract's facts document (gpucheck.facts/1), and beside it what only our own modules need."""
    simulated = simulation(simulator)
    root = os.path.join(simulator, "root") if simulated is not None else "/"
    system = os_release()
    family = package_family(system["like"])
    keys, unfinished, locks, doubled, kernels = [], [], [], {}, {}
    if family == "dpkg":
        everything, holds, unfinished = dpkg_packages()
    else:
        (everything, doubled, kernels), keys = rpm_packages(), rpm_keys()
        unfinished = sorted(doubled)
        locks = version_locks()
        holds = sorted({lock_name(entry) for entry in locks})
    kernel = text(os.path.join(root, "proc/sys/kernel/osrelease")) or os.uname().release
    functions = pci_devices(root)
    devices = functions[NVIDIA]
    gpus = [row for row in devices if row[1][:4] in ("0300", "0302")]
    others, distributions = origin.foreign(everything, family)
    if simulated is None:
        others += origin.without_package(everything, safety.dkms(), kernel)
    facts = {
        "schema": "gpucheck.facts/1",
        "host": host,
        "os": {key: system[key] for key in ("id", "version", "name")},
        "arch": os.uname().machine,
        "kernel": kernel,
        "simulated": simulated is not None,
        "stand_ins": list((simulated or {}).get("stand_ins", [])),
        "gpus": [{"bus_id": bus, "device_id": device, "subsystem_id": subsystem} for bus, _, device, subsystem in gpus],
        "nvswitches": sum(kind[:4] == "0680" for _, kind, _, _ in devices),
        "rdma": rdma.cards(functions[rdma.MELLANOX]),
        "ofed": rdma.ofed(everything),
        "driver": driver(root, kernel, everything),
        "nouveau_loaded": os.path.isdir(os.path.join(root, "sys/module/nouveau")),
        "secure_boot": secure_boot(root),
        "kernels": safety.kernels(),
        "headers": kernels_with_headers(),
        "dkms": safety.dkms(),
        "vgpu_guest": safety.vgpu_guest(root, [row[0] for row in gpus]),
        "repositories": safety.repositories(),
        "processes": safety.processes(),
        "free_bytes": safety.free_bytes(),
        "package_locks": safety.package_locks(family),
        "foreign": others + distributions,
        "packages": {name: everything[name] for name in sorted(everything) if OF_INTEREST.search(name)},
        "holds": holds,
        "python3": python3(),
        "reboot_count": None,
    }
    beside = {"packages": everything, "keys": keys, "unfinished": unfinished, "locks": locks, "family": family}
    beside.update(doubled=doubled, kernels=kernels, modules=rdma.loaded_modules(root))
    beside.update(of_distribution=distributions, managed=origin.managed())
    beside["slow_boot"] = safety.slow_boot(len(gpus), facts["nvswitches"], safety.memory_bytes(root))
    return facts, beside
