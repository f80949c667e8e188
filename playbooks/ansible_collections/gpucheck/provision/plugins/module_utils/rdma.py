"""What lets network cards reach GPU memory: RDMA cards by PCI id, OFED, and kernel modules that are loaded at boot."""

import os
import re
import shutil

from .readers.files import Unreadable, command, text

MELLANOX = "15b3"
KINDS = {"0207": "infiniband", "0200": "ethernet"}
# The kernel part of MLNX_OFED and DOCA-OFED, as deb and rpm packages call it; nvidia-peermem needs its symbols.
OFED_PACKAGE = re.compile(r"^(kmod-)?mlnx-(ofa_kernel|ofed-kernel)(-dkms|-modules.*)?$|^doca-ofed")
OFED_INFO = "usr/bin/ofed_info"
MODULES_LOAD_D = "/etc/modules-load.d/"
# With ib_umad alone the subnet manager finds no switch of an NVLink 5 board: the cards before them need their driver.
ALONG = {"ib_umad": ["mlx5_ib"]}
# Ubuntu's cloud kernels have these modules in a package of their own (NVIDIA/gpu-operator#2781).
EXTRA = "linux-modules-extra-{}"


def cards(rows):
    """The RDMA cards among PCI functions of Mellanox; their management and crypto functions do not count."""
    return [
        {"bus_id": bus_id, "device_id": device, "kind": KINDS[kind[:4]]}
        for bus_id, kind, device, _ in rows
        if kind[:4] in KINDS
    ]


def ofed(packages, root="/"):
    """Version of the installed OFED, "unknown" where it came without a package, None where there is none."""
    found = [packages[name] for name in sorted(packages) if OFED_PACKAGE.search(name)]
    if found:
        return found[0].split(":")[-1]
    return "unknown" if os.path.exists(os.path.join(root, OFED_INFO)) else None


def loaded_modules(root="/"):
    """Names of the kernel modules that are loaded, and of built-in ones that show themselves."""
    folder = os.path.join(root, "sys/module")
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def builtin_modules(kernel, root="/"):
    lines = (text(os.path.join(root, "lib/modules", kernel, "modules.builtin")) or "").splitlines()
    return {os.path.basename(line).partition(".ko")[0].replace("-", "_") for line in lines}


def planned_modules(plan):
    rows = [row["content"] for row in plan["files"] if row["path"].startswith(MODULES_LOAD_D)]
    words = [line.strip() for content in rows for line in content.splitlines()]
    return [word.replace("-", "_") for word in words if word and not word.startswith(("#", ";"))]


def missing_modules(plan, loaded, kernel, root="/"):
    absent = [name for name in planned_modules(plan) if name not in loaded]
    return [name for name in absent if name not in builtin_modules(kernel, root)]


def differences(missing):
    return [f"module {name} is not loaded, planned at boot" for name in missing]


def absent_modules(plan, loaded, kernel, root="/"):
    """Modules of the kernel's own that the plan needs and this kernel does not have. loaded: of the running kernel.

    What begins with nvidia comes with the driver.
    """
    if shutil.which("modinfo") is None:
        return []
    wanted = [name for name in planned_modules(plan) if not name.startswith("nvidia")]
    wanted += [name for first in wanted for name in ALONG.get(first, [])]
    there = builtin_modules(kernel, root) | set(loaded)
    return [name for name in wanted if name not in there and module_file(name, kernel) is None]


def ofed_is_built(kernel):
    return "/kernel/" not in (module_file("mlx5_core", kernel) or "")  # where the kernel's own is


def module_file(name, kernel):
    try:
        return command(["modinfo", "-k", kernel, "-F", "filename", name])
    except Unreadable:
        return None


def kernel_parts(plan, facts, extras, later):
    """({package: modules}, sentences): packages to install for modules that kernels lack, and why a host must stop.

    later: kernels that the next boot may use. They are checked only if there is a package for them, too.
    """
    packages, refusals = {}, []
    if any(one.startswith("kernel") for one in facts.get("stand_ins", [])):
        return packages, refusals
    ubuntu = facts.get("os", {}).get("id") == "ubuntu"
    for release in [facts["kernel"]] + (later if ubuntu else []):
        running = release == facts["kernel"]
        lacks = absent_modules(plan, extras["modules"] if running else [], release)
        package = EXTRA.format(release)
        if lacks and ubuntu and package not in extras["packages"]:
            packages[package] = lacks
        elif lacks and running:
            refusals.append(
                f"kernel {release} has no module {', '.join(lacks)}. Without it the NVSwitches of these GPUs are not "
                "configured. Install the kernel package that has it (kernel-modules or kernel-modules-extra on the EL "
                "family), or DOCA-OFED, then run again"
            )
    return packages, refusals


def package_differences(packages):
    return ["{} is needed for {}".format(name, ", ".join(packages[name])) for name in sorted(packages)]
