"""The driver's device files: may this process use them, and is there a GPU behind each?

access(2) asks a device cgroup as open(2) does (devcgroup_inode_permission in include/linux/device_cgroup.h; tried with
cgroup v1 and with a program of cgroup v2 on Linux 6.18), and it does not reach the driver: it wakes no GPU and does not
wait for one. Only a GPU that this process may use and that NVML does not list is opened, in a child with a deadline.
"""

import ctypes
import errno
import os
import re
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from gpucheck.host.readers.files import folder_names, text
from gpucheck.model import DeviceFile
from gpucheck.processes.child import Child

CONTROL = ("nvidiactl", "nvidia-uvm")
MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)
GPU_FILE = re.compile(r"nvidia\d+")
# Without O_NONBLOCK, with which the driver answers before it has initialised the GPU.
OPEN = """import errno, os, sys
try: os.close(os.open(sys.argv[1], os.O_RDWR)); answer = ""
except OSError as error: answer = errno.errorcode.get(error.errno, str(error.errno))
os.write(int(sys.argv[2]), (answer + "\\n").encode())"""


def read_device_files(
    devices: Path,
    gpus: Path,
    *,
    listed: Collection[str] | None,
    simulated: Mapping[str, str] | None,
    deadline_s: float,
) -> tuple[DeviceFile, ...]:
    """Return the control files and a file for each GPU of the driver; none if there is neither driver nor file.

    devices: /dev. gpus: /proc/driver/nvidia/gpus. listed: bus ids of the GPUs that NVML lists; None opens no GPU.
    simulated: errors of a simulated driver by file name, for there is no driver to open.
    """
    bus_ids = dict(_minors(gpus))
    names = {name for name in folder_names(devices) or () if GPU_FILE.fullmatch(name) or name in CONTROL}
    if not names | bus_ids.keys():
        return ()
    names |= {*bus_ids, "nvidiactl"}
    # A file without a GPU of the driver is opened only if it may be that of a GPU which NVML does not list.
    numbered = [name for name in names if GPU_FILE.fullmatch(name)]
    spare = listed is not None and len(numbered) > len(listed)
    found = []
    for name in sorted(names, key=lambda name: (len(name), name)):
        path, bus_id = devices / name, bus_ids.get(name)
        error = denied(path)
        if simulated is not None:
            error = error if error in ("EPERM", "ENOENT") else simulated.get(name)
        elif error is None and name in numbered and listed is not None and bus_id not in listed and (bus_id or spare):
            error = _opened(path, deadline_s)
        found.append(DeviceFile(name=name, bus_id=bus_id, error=error))
    return tuple(found)


def _minors(gpus: Path) -> Iterator[tuple[str, str]]:
    for bus_id in folder_names(gpus) or ():
        minor = MINOR.search(text(gpus / bus_id / "information") or "")
        if minor:
            yield f"nvidia{minor[1]}", bus_id.lower()


def denied(path: Path) -> str | None:
    """Return errno's name if this process may not read and write a file, None if it may."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.access(os.fsencode(path), os.R_OK | os.W_OK) == 0:
        return None
    return errno.errorcode.get(ctypes.get_errno(), "EIO")


def _opened(path: Path, deadline_s: float) -> str | None:
    """Open a file and close it. Return errno's name, ETIMEDOUT if that does not return, None if it works."""
    try:
        child = Child([sys.executable, "-I", "-S", "-c", OPEN, str(path)], os.environ)
    except OSError:
        return None
    try:
        line = child.read_line(time.monotonic() + deadline_s)
    except TimeoutError:
        return "ETIMEDOUT"
    finally:
        child.end(patience_s=0.0)
    return (line or b"").decode().strip() or None
