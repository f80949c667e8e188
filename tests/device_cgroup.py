"""Real device cgroups: version 1, and version 2 with a program (BPF_PROG_TYPE_CGROUP_DEVICE) as systemd attaches it."""

import ctypes
import os
import stat
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.shared import END_S

V1, V2 = Path("/sys/fs/cgroup/devices"), Path("/sys/fs/cgroup")
MAJOR = 195  # of the driver, registered with the kernel: Documentation/admin-guide/devices.txt
BPF, PROG_LOAD, PROG_ATTACH = 321, 5, 8  # x86-64; linux/bpf.h
CGROUP_DEVICE_PROGRAM, CGROUP_DEVICE = 15, 6


def unified():
    """The root of cgroup v2, None where it is not mounted."""
    return next((one for one in (V2, V2 / "unified") if (one / "cgroup.controllers").exists()), None)


def nodes(folder, count=4):
    """Device files of a driver that is not loaded: to open one that is not hidden fails with ENXIO."""
    for name, minor in (("nvidiactl", 255), *((f"nvidia{minor}", minor) for minor in range(count))):
        os.mknod(folder / name, stat.S_IFCHR, os.makedev(MAJOR, minor))
        (folder / name).chmod(0o666)


def run(version, minors, command, **options):
    """Run a command in a cgroup that denies these files of the driver. Raises OSError where that is not permitted."""
    root = V1 if version == 1 else unified()
    if root is None or not root.is_dir():
        raise FileNotFoundError(f"no cgroup v{version}")
    group = root / f"gpucheck-{os.getpid()}"
    group.mkdir()
    try:
        if version == 1:
            for minor in minors:
                (group / "devices.deny").write_text(f"c {MAJOR}:{minor} rwm")
        else:
            _attach(group, minors)
        inside = ["sh", "-c", 'echo $$ >"$0" && exec "$@"', group / "cgroup.procs", *command]
        return subprocess.run(inside, capture_output=True, text=True, check=False, timeout=END_S, **options)
    finally:
        with suppress(OSError):
            group.rmdir()


def _attach(group, minors):
    def op(code, dst=0, src=0, off=0, imm=0):
        return struct.pack("<BBhi", code, src << 4 | dst, off, imm)

    # struct bpf_cgroup_dev_ctx: access_type, major, minor. r0 = 1 permits.
    program = op(0x61, 2, 1, 4) + op(0x61, 3, 1, 8) + op(0xB7, 0, imm=1)
    denials = [op(0x55, 3, off=2, imm=minor) + op(0xB7, 0, imm=0) + op(0x95) for minor in minors]
    program += op(0x55, 2, off=3 * len(denials), imm=MAJOR) + b"".join(denials) + op(0x95)
    code, licence = ctypes.create_string_buffer(program), ctypes.create_string_buffer(b"GPL")
    size, at = len(program) // 8, ctypes.addressof
    loaded = _bpf(PROG_LOAD, struct.pack("<IIQQ", CGROUP_DEVICE_PROGRAM, size, at(code), at(licence)))
    directory = os.open(group, os.O_RDONLY)
    try:
        _bpf(PROG_ATTACH, struct.pack("<IIII", directory, loaded, CGROUP_DEVICE, 0))
    finally:
        os.close(directory)
        os.close(loaded)


def _bpf(command, attributes):
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, 128)
    answer = libc.syscall(BPF, command, buffer, len(buffer))
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


def available(version):
    """Whether such a cgroup can be made here."""
    if os.geteuid() != 0 or sys.platform != "linux":
        return False
    try:
        return run(version, (), ["true"]).returncode == 0
    except OSError:
        return False
