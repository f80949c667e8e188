"""What lets network cards reach GPU memory: RDMA cards by PCI id, OFED, and kernel modules that are loaded at boot.

Runs on the managed host: standard library only, Python 3.6 or newer. Nothing here changes anything.
"""

import os
import re

from ansible_collections.gpucheck.provision.plugins.module_utils.files import text

MELLANOX = "15b3"
KINDS = {"0207": "infiniband", "0200": "ethernet"}
# The kernel part of MLNX_OFED and DOCA-OFED, as deb and rpm packages call it; nvidia-peermem needs its symbols.
OFED_PACKAGE = re.compile(r"^(kmod-)?mlnx-(ofa_kernel|ofed-kernel)(-dkms|-modules.*)?$|^doca-ofed")
OFED_INFO = "usr/bin/ofed_info"
MODULES_LOAD_D = "/etc/modules-load.d/"


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
    """Names of the modules that are part of the kernel itself."""
    lines = (text(os.path.join(root, "lib/modules", kernel, "modules.builtin")) or "").splitlines()
    return {os.path.basename(line).partition(".ko")[0].replace("-", "_") for line in lines}


def planned_modules(plan):
    """Names of the modules that the plan has loaded at boot."""
    rows = [row["content"] for row in plan["files"] if row["path"].startswith(MODULES_LOAD_D)]
    words = [line.strip() for content in rows for line in content.splitlines()]
    return [word.replace("-", "_") for word in words if word and not word.startswith(("#", ";"))]


def missing_modules(plan, loaded, kernel, root="/"):
    """Modules that are planned at boot and not in the running kernel."""
    absent = [name for name in planned_modules(plan) if name not in loaded]
    return [name for name in absent if name not in builtin_modules(kernel, root)]


def differences(missing):
    """Words for the modules that are missing."""
    return ["module {} is not loaded, planned at boot".format(name) for name in missing]
