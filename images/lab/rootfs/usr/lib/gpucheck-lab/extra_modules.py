"""nvidia_peermem in the stand-in kernel.

What the real kernel asks of it holds here too: it needs a driver that was built while OFED was there. SIMULATED.
"""

import shutil

import kernel

OFED = kernel.ROOT / "usr/src/ofa_kernel"
DKMS = kernel.ROOT / "var/lib/dkms"
MODULES_LOAD_D = kernel.ROOT / "etc/modules-load.d"


def at_boot():
    """Names of the modules that modules-load.d asks for."""
    # Debian's own modules.conf is a link to a file that not every host has.
    files = [path for path in sorted(MODULES_LOAD_D.glob("*.conf")) if path.is_file()]
    lines = [line for path in files for line in path.read_text().splitlines()]
    return [line.strip() for line in lines if line.strip() and not line.startswith(("#", ";"))]


def peer_memory():
    """What a driver that is built now says of OFED's interface: a line of its module, empty without OFED."""
    return "peermem=yes\n" if OFED.is_dir() else ""


def place(name, version):
    """Where DKMS keeps a module for the running kernel."""
    return DKMS / name / version / kernel.release() / "x86_64/module" / f"{name}.ko"


def keep(name, version, content):
    """Put a module where DKMS keeps what it has built."""
    kernel.write(place(name, version), content)


def forget(name):
    """Take away what DKMS has built of this name."""
    shutil.rmtree(DKMS / name, ignore_errors=True)


def load_peermem():
    """Load nvidia_peermem. Returns None, or why the kernel would refuse."""
    driver = kernel.installed()
    if not driver:
        return f"FATAL: Module nvidia_peermem not found in directory /lib/modules/{kernel.release()}"
    refusal = kernel.load_nvidia()
    if refusal:
        return refusal
    if "peermem" not in driver or not OFED.is_dir():
        return "ERROR: could not insert 'nvidia_peermem': Invalid argument (built without OFED; SIMULATED)"
    return insert("nvidia_peermem")


def insert(name):
    """Show a module as loaded."""
    kernel.write(kernel.LIVE / "root/sys/module" / name / "refcnt", "0\n")
    kernel.proc_modules(lambda lines: [f"{name} 24576 0 - Live 0x0000000000000000", *lines])


def remove(name):
    """Take one of these out of the simulated kernel."""
    shutil.rmtree(kernel.LIVE / "root/sys/module" / name)
    kernel.proc_modules(lambda lines: [line for line in lines if line.split()[0] != name])


LOAD = {"nvidia_peermem": load_peermem}
