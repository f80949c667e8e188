"""The stand-in kernel of a lab host: which GPU module is loaded, by the rules of a real one. SIMULATED.

Needs nothing but Python 3.9 and its standard library.

What lives where (below GPUCHECK_LAB_ROOT, which is / except in tests):
    /usr/share/gpucheck-lab/machine   the bare machine, as the simulator wrote it
    /usr/lib/gpucheck-lab/kernel-release
    /var/lib/gpucheck-lab/            what outlives a reboot: boots, initramfs/, modules/, dkms/, enrolled-keys
    /run/gpucheck-simulator/          the machine as it is now; made anew at each boot
"""

import fcntl
import hashlib
import os
import re
import shutil
from pathlib import Path

ROOT = Path(os.environ.get("GPUCHECK_LAB_ROOT", "/"))
LAB = ROOT / "usr/lib/gpucheck-lab"
STATIC = ROOT / "usr/share/gpucheck-lab/machine"
STATE = ROOT / "var/lib/gpucheck-lab"
LIVE = ROOT / "run/gpucheck-simulator"
MODPROBE_D = ROOT / "etc/modprobe.d"
DKMS_SETTINGS = ROOT / "etc/dkms/framework.conf.d"
SECURE_BOOT = LIVE / "root/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

PROC_VERSION = {
    "open": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (SIMULATED)",
    "proprietary": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  (SIMULATED)",
}
LICENSE = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}
NVIDIA_MODULES = (
    "nvidia_uvm 2080768 0 - Live 0x0000000000000000",
    "nvidia 103956480 1 nvidia_uvm, Live 0x0000000000000000",
)
# As a host with network cards has it from the vendor's RDMA stack; the open modules need none (DMA-BUF).
PEER_MEMORY = "nvidia_peermem 16384 0 - Live 0x0000000000000000"
# Device ids below Turing's first: their GPUs have no GSP, which the open module needs. (provisioning facts, section 16)
FIRST_OPEN_DEVICE = 0x1DF7


def release():
    """The release of the kernel that this host says it runs."""
    return (LAB / "kernel-release").read_text().strip()


def read_pairs(path):
    """A file of ``key=value`` lines as a dict."""
    lines = path.read_text().splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines if "=" in line)}


def write(path, text):
    """Write a file whole or not at all, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)


def set_gpus(key, value):
    """Set a key of every GPU in machine.txt, which the simulated NVML answers from. A GPU without the key stays so."""
    path = LIVE / "machine.txt"
    # Daemons start side by side at boot: without the lock one would write back what the other has just changed.
    with (LIVE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pattern = re.compile(rf"^(gpu\.\d+\.{re.escape(key)}) = .*$", re.MULTILINE)
        write(path, pattern.sub(rf"\1 = {value}", path.read_text()))


# Modules


def is_loaded(module):
    """Is the module in the simulated kernel?"""
    return (LIVE / "root/sys/module" / module).is_dir()


def installed():
    """version and license of the nvidia module installed for the running kernel, {} where there is none."""
    path = STATE / "modules" / release() / "updates/dkms/nvidia.ko"
    return read_pairs(path) if path.is_file() else {}


def sync_modules():
    """Show the installed modules and headers where a reader of the simulated machine looks for them."""
    target = LIVE / "root/lib/modules" / release()
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    installed_here = STATE / "modules" / release()
    if installed_here.is_dir():
        shutil.copytree(installed_here, target, dirs_exist_ok=True)
    if has_headers(release()):
        (target / "build").mkdir()


def has_headers(kernel):
    """Are the headers of this kernel installed, so that DKMS can build for it?"""
    return (ROOT / "lib/modules" / kernel / "build").exists()


def functions(*classes):
    """Folders of the NVIDIA functions of these PCI classes (the first four digits) in the simulated sysfs."""
    devices = sorted((LIVE / "root/sys/bus/pci/devices").glob("*"))
    return [
        device.resolve()
        for device in devices
        if (device / "vendor").read_text().strip() == "0x10de" and (device / "class").read_text()[2:6] in classes
    ]


def gpus():
    """Display and 3D controllers."""
    return functions("0300", "0302")


def switches():
    """NVSwitch chips, which are bridges of no PCI kind."""
    return functions("0680")


def bind(devices, driver):
    """Show these functions as bound to a driver, or with None to none."""
    for device in devices:
        link = device / "driver"
        if link.is_symlink():
            link.unlink()
        if driver:
            folder = LIVE / "root/sys/bus/pci/drivers" / driver
            folder.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(folder, device))


def proc_modules(change):
    """Rewrite /proc/modules. change: a function from the lines to the new lines."""
    path = LIVE / "root/proc/modules"
    lines = path.read_text().splitlines() if path.exists() else []
    write(path, "".join(f"{line}\n" for line in change(lines)))


def load_nouveau():
    """What the kernel does at boot for an NVIDIA GPU when nothing forbids it."""
    write(LIVE / "root/sys/module/nouveau/refcnt", "0\n")
    proc_modules(lambda lines: ["nouveau 3104768 0 - Live 0x0000000000000000", *lines])
    bind(gpus(), "nouveau")


def with_peer_memory(lines, flavour):
    """The lines, and nvidia_peermem where there are network cards and the modules are not the open ones."""
    has_cards = any(line.split()[0] == "mlx5_core" for line in lines)
    return [*lines, PEER_MEMORY] if has_cards and flavour == "proprietary" else lines


def load_nvidia():
    """Load the installed nvidia module. Returns None, or why the kernel would refuse."""
    module = installed()
    if is_loaded("nvidia"):
        return None
    if not module:
        return f"FATAL: Module nvidia not found in directory /lib/modules/{release()}"
    # Of a package that is broken on purpose: it builds, and cannot be loaded.
    if "refused" in module:
        return f"ERROR: could not insert 'nvidia': {module['refused']} (SIMULATED)"
    if is_loaded("nouveau"):
        return "ERROR: could not insert 'nvidia': No such device (nouveau holds the GPUs; SIMULATED)"
    if has_secure_boot() and module.get("sig_key") not in keys("enrolled"):
        return "ERROR: could not insert 'nvidia': Key was rejected by service (SIMULATED)"
    flavour = next(name for name, license_ in LICENSE.items() if license_ == module["license"])
    ids = [int((gpu / "device").read_text(), 16) for gpu in gpus()]
    if not ids:
        return "ERROR: could not insert 'nvidia': No such device (no NVIDIA GPU; SIMULATED)"
    if flavour == "open" and min(ids) < FIRST_OPEN_DEVICE:
        return (
            "ERROR: could not insert 'nvidia': No such device "
            f"(the open kernel module does not support the GPU 10de:{min(ids):04x}; SIMULATED)"
        )
    write(LIVE / "root/sys/module/nvidia/version", f"{module['version']}\n")
    write(LIVE / "root/sys/module/nvidia/refcnt", "0\n")
    banner = PROC_VERSION[flavour].format(version=module["version"])
    write(LIVE / "root/proc/driver/nvidia/version", f"{banner}\nGCC version:  gcc version 12.2.0\n")
    proc_modules(lambda lines: with_peer_memory([*NVIDIA_MODULES, *lines], flavour))
    bind(gpus(), "nvidia")
    bind(switches(), "nvidia-nvswitch")
    for path in device_files():
        path.parent.mkdir(exist_ok=True)
        path.write_text("SIMULATED device\n")
    return None


# Secure Boot


def has_secure_boot():
    """Does the firmware have the kernel refuse modules that are not signed with a key it knows?"""
    return SECURE_BOOT.exists() and SECURE_BOOT.read_bytes()[4:5] == b"\1"


def digest(path):
    """What stands for a key: a hash of its certificate, "" where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def signature():
    """What a module that DKMS builds now says of its signature, "" for DKMS's own key, which nobody enrols here."""
    settings = {}
    for path in sorted(DKMS_SETTINGS.glob("*.conf")):
        settings.update(read_pairs(path))
    key = digest(ROOT / settings.get("mok_certificate", "none").lstrip("/"))
    return f"sig_key={key}\n" if key else ""


def keys(name):
    """Keys in a list of the firmware: enrolled, or requested since the last boot."""
    path = STATE / f"{name}-keys"
    return path.read_text().split() if path.exists() else []


def enroll_requested():
    """What a person at the console does at boot: confirm what mokutil asked for."""
    if keys("requested"):
        write(STATE / "enrolled-keys", "\n".join(keys("enrolled") + keys("requested")))
        (STATE / "requested-keys").unlink()


def device_files():
    """What appears in /dev with the driver. Plain files: a container may make device nodes, but not open them."""
    names = ("nvidiactl", "nvidia-uvm", *(f"nvidia{index}" for index in range(len(gpus()))))
    return [ROOT / "dev" / name for name in names]


def remove(module):
    """Take a module out of the simulated kernel."""
    shutil.rmtree(LIVE / "root/sys/module" / module)
    gone = ("nvidia", "nvidia_uvm", "nvidia_peermem") if module == "nvidia" else (module,)
    proc_modules(lambda lines: [line for line in lines if line.split()[0] not in gone])
    if module == "nvidia":
        shutil.rmtree(LIVE / "root/proc/driver/nvidia")
        bind(switches(), None)
        for path in device_files():
            path.unlink()
    bind(gpus(), None)


def blacklisted():
    """Is nouveau kept from loading at boot: by a modprobe.d file that is in the initramfs too?"""

    def blacklists_nouveau(folder):
        files = sorted(folder.glob("*.conf")) if folder.is_dir() else []
        lines = (line.split() for path in files for line in path.read_text().splitlines())
        return any(words[:2] == ["blacklist", "nouveau"] for words in lines)

    return blacklists_nouveau(MODPROBE_D) and blacklists_nouveau(STATE / "initramfs")
