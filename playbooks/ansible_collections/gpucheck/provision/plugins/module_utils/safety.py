"""Conditions that block a change on a GPU host: programs on the GPUs, package locks, vGPU guests, space, keys."""

import fcntl
import glob
import os
import re
import struct

from .readers.config_space import VENDOR_SPECIFIC, capability, reader
from .readers.driver import MODULE_NAMES
from .readers.files import Unreadable, folder_names, run, text
from .readers.kernels import DKMS_TREE, dkms_builds

# They hold the device files open all their life and stop with the driver's own scripts.
DAEMONS = frozenset(["nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "nvidia-imex"])
# apt and dpkg take these with fcntl, rpm its own; dnf writes its process number into files.
FCNTL_LOCKS = {
    # apt does not wait for the last one, which apt-daily holds while it only downloads.
    "dpkg": (
        "/var/lib/dpkg/lock-frontend",
        "/var/lib/dpkg/lock",
        "/var/lib/apt/lists/lock",
        "/var/cache/apt/archives/lock",
    ),
    "rpm": ("/var/lib/rpm/.rpm.lock",),
}
PID_LOCKS = {"dpkg": (), "rpm": ("/var/lib/dnf/rpmdb_lock.pid", "/var/cache/dnf/*_lock.pid", "/run/dnf.pid")}
FLOCK = "@hhqqi4x"
# Where driver, CUDA, their downloads, PyTorch and the initramfs go.
FILLED = ("/usr", "/usr/local", "/var", "/opt", "/boot")
VGPU_MARK = b"VF"


def processes():
    """Programs that hold a GPU device file open, as ``name (pid)``; needs root to see those of other users."""
    found = []
    for folder in glob.glob("/proc/[0-9]*/fd"):
        pid = folder.split("/")[2]
        try:
            targets = [os.readlink(os.path.join(folder, fd)) for fd in os.listdir(folder)]
        except OSError:
            continue  # the process ended while we looked
        name = text(f"/proc/{pid}/comm") or ""
        if any(re.match(r"/dev/nvidia(\d|-uvm$)", target) for target in targets) and name not in DAEMONS:
            found.append(f"{name} ({pid})")
    return sorted(found)


def file_systems(folders=FILLED):
    """[{folders, free_bytes}] by file system: what is free on one counts once. A folder to be made is its parent's."""
    found = {}
    for folder in folders:
        there = folder
        while not os.path.isdir(there):
            there = os.path.dirname(there)
        space = os.statvfs(there)
        row = found.setdefault(device(there), {"folders": [], "free_bytes": space.f_bavail * space.f_frsize})
        row["folders"].append(folder)
    return [found[key] for key in sorted(found)]


def device(folder):
    return os.stat(folder).st_dev


def package_locks(family):
    """Who holds the package manager's locks now, in sentences; needs root."""
    found = []
    for path in FCNTL_LOCKS[family]:
        pid = fcntl_owner(path)
        if pid is not None:
            found.append(f"{path} is held by {process_name(pid)}")
    for pattern in PID_LOCKS[family]:
        for path in sorted(glob.glob(pattern)):
            pid = text(path) or ""
            if pid.isdigit() and os.path.isdir("/proc/" + pid):
                found.append(f"{path} is held by {process_name(int(pid))}")
    return found


def fcntl_owner(path):
    """The process that holds a write lock on the file, 0 where it is in another namespace, None where there is none."""
    try:
        with open(path, "rb+") as file:
            request = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, request))
    except OSError:
        return None
    return None if kind == fcntl.F_UNLCK else pid


def process_name(pid):
    """``name (pid)``."""
    return "{} ({})".format(text(f"/proc/{pid}/comm") or "a process", pid)


def vgpu_guest(root, bus_ids):
    """True where a GPU bears the mark of a vGPU: ``VF`` in its vendor-specific PCI capability. Only root sees it."""
    for bus_id in bus_ids:
        try:
            with open(os.path.join(root, "sys/bus/pci/devices", bus_id, "config"), "rb") as file:
                config = file.read(256)
        except OSError:
            continue
        if vendor_mark(config) == VGPU_MARK:
            return True
    return False


def vendor_mark(config):
    """The two bytes after the length of the vendor-specific capability, empty where there is none."""
    place = capability(reader(config), VENDOR_SPECIFIC)
    return b"" if place is None else bytes(config[place + 3 : place + 5])


def kernels(root="/"):
    """Releases of the installed kernels: those that have modules of their own."""
    folder = os.path.join(root, "lib/modules")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(name for name in names if os.path.exists(os.path.join(folder, name, "modules.dep")))


def dkms(root="/"):
    """Return {version: [kernels]} of the nvidia modules built by DKMS; Debian's own packages are nvidia-current."""
    found = {}
    for name in MODULE_NAMES:
        for version in folder_names(os.path.join(root, DKMS_TREE, name)) or ():
            if version[:1].isdigit():
                for build in dkms_builds(root, name, version):
                    found.setdefault(version, []).append(build.kernel)
    return {version: sorted(names) for version, names in sorted(found.items())}


def mok_state(plan, secure_boot):
    """{certificate, missing, enrolled, why} of the planned key that DKMS signs modules with, None without one.

    missing: its files that are not there. enrolled: None where it does not matter or is not known; why: the reason.
    """
    planned = plan.get("mok")
    if not planned:
        return None
    missing = [path for path in (planned["key"], planned["certificate"]) if not os.path.isfile(path)]
    found = {"certificate": planned["certificate"], "missing": missing, "enrolled": None, "why": ""}
    if secure_boot is not False and not missing:
        found["enrolled"], found["why"] = enrolled(planned["certificate"])
    return found


def enrolled(certificate):
    """(enrolled, why): whether the firmware's list has the key, None if mokutil does not report it; why it has not."""
    try:
        done = run(["mokutil", "--test-key", certificate])
    except Unreadable as error:
        return None, str(error)
    # It exits with 1 for a key that is enrolled.
    if done.returncode not in (0, 1):
        return None, f"mokutil: exit {done.returncode}: {done.stderr}"
    output = done.stdout.strip()
    if output.endswith(("already enrolled", "already in db")):  # the list of shim, and that of the firmware
        return True, ""
    if "enrollment request" in output:
        return False, "its enrollment waits for a confirmation on the console at the next boot"
    return (False if "not enrolled" in output else None), output or "mokutil prints nothing"
