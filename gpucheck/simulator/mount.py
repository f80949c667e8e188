"""Show a simulated machine to every program: its files below /sys, /proc and /dev, in private namespaces.

All of it exists in the namespaces only, which the kernel removes with the last process in them, however that ends.
"""

import ctypes
import fcntl
import os
import shlex
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

# linux/sched.h, linux/mount.h, linux/if.h, linux/sockios.h
NEW_MOUNTS, NEW_USER, NEW_NETWORK = 0x00020000, 0x10000000, 0x40000000
READ_ONLY, NO_SUID, REMOUNT, BIND, MOVE, RECURSIVE, PRIVATE = 1, 2, 32, 4096, 8192, 16384, 1 << 18
KEPT_FLAGS = 2 | 4 | 8 | 1024 | 2048 | (1 << 21)  # of a mount of the host: an unprivileged user cannot remove them
INTERFACE_UP, SET_FLAGS = 0x1, 0x8914
# What a program needs of /dev besides the simulated files, as container runtimes give it.
NODES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")
FOLDERS = ("pts", "shm", "mqueue", "hugepages")
LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
OTHER_FOLDERS = ("lib/modules", "usr/src", "var/lib/dkms")
PRIVATE_FOLDER = "gpucheck"  # below the new /dev
COMMANDS = {"nvidia-smi": "nvidia_smi", "dmesg": "kernel_log", "journalctl": "kernel_log"}
NOT_SHOWN = ("systemd units", "the CUDA runtime", "traffic of network cards", "cgroups")


def enter(machine: Path) -> tuple[str, ...]:
    """Move this process into namespaces that show the machine; return what they do not show.

    Its nvidia-smi, dmesg and journalctl are put first on PATH. A user other than root gets a user namespace as well,
    and keeps its number in it. Only for a process of one thread.
    Raises OSError, with the path or the call that failed; what was mounted until then is gone with the process.
    """
    _unshare()
    _mount(None, "/", flags=RECURSIVE | PRIVATE)
    _loopback()
    root = machine / "root"
    _devices(machine)
    _bind(root / "sys", Path("/sys"), read_only=True)
    missing = [str(target) for source, target in _others(root) if not _shown(source, target)]
    os.environ["PATH"] = f"/dev/{PRIVATE_FOLDER}/bin:{os.environ.get('PATH', os.defpath)}"
    return (*NOT_SHOWN, *missing)


def _unshare() -> None:
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", NEW_MOUNTS | NEW_NETWORK)
    except PermissionError:
        _call("unshare", NEW_USER | NEW_MOUNTS | NEW_NETWORK)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path(f"/proc/self/{name}").write_bytes(text.encode())


def _devices(machine: Path) -> None:
    """A /dev of its own. It is made on /sys, whose place is free until it has its own files, and moved."""
    stage = Path("/sys")
    _mount("tmpfs", stage, "tmpfs", NO_SUID, "mode=755,size=4m")
    for name in (*NODES, *FOLDERS):
        if Path("/dev", name).exists():
            _bind(Path("/dev", name), stage / name)
    for name, target in LINKS.items():
        (stage / name).symlink_to(target)
    own = stage / PRIVATE_FOLDER
    (own / "bin").mkdir(parents=True)
    for name, module in COMMANDS.items():
        (own / "bin" / name).write_text(_script(machine, name, module), encoding="utf-8")
        (own / "bin" / name).chmod(0o755)
    _bind(machine, own / "machine", read_only=True)
    simulated = machine / "root" / "dev"
    for path in sorted(simulated.rglob("*")) if simulated.is_dir() else ():
        place = stage / path.relative_to(simulated)
        if path.is_dir():
            place.mkdir()
        elif path.stat().st_size:  # a log. Through the folder, as a change of faults puts another file in its place.
            place.symlink_to(f"/dev/{PRIVATE_FOLDER}/machine/root/dev/{path.relative_to(simulated)}")
        else:
            _bind(Path("/dev/null"), place)  # a device that opens, and does nothing
    _mount(stage, "/dev", flags=MOVE)


def _script(machine: Path, name: str, module: str) -> str:
    """A command that works for programs which clear the environment, too."""
    folders = [str(Path(folder).resolve()) for folder in sys.path]
    code = (
        f"import sys; sys.path[:] = {folders!r}; from gpucheck.simulator.{module} import main; "
        f"sys.exit(main({name!r}, sys.argv[1:]))"
    )
    environment = f"GPUCHECK_SIMULATOR={shlex.quote(str(machine))} LD_LIBRARY_PATH={shlex.quote(str(machine / 'lib'))}"
    return f'#!/bin/sh\n{environment} exec {shlex.quote(sys.executable)} -I -c {shlex.quote(code)} "$@"\n'


def _others(root: Path) -> Iterator[tuple[Path, Path]]:
    """Files and folders besides /sys and /dev, with where they belong."""
    yield root / "proc" / "driver", Path("/proc/driver")
    for path in sorted((root / "proc").rglob("*")):
        # Routes are those of the namespace: /proc/net is a link into the process.
        if path.is_file() and path.relative_to(root / "proc").parts[0] not in ("driver", "net"):
            yield path, Path("/", path.relative_to(root))
    yield from ((root / name, Path("/", name)) for name in OTHER_FOLDERS if (root / name).is_dir())


def _shown(source: Path, target: Path) -> bool:
    """False where this kernel or system has no such path: nothing can be mounted there without making one."""
    if not source.exists() or not target.exists():
        return not source.exists()
    _bind(source, target, read_only=True)
    return True


def _bind(source: Path, target: Path, *, read_only: bool = False) -> None:
    """Show a file or folder at another place as well, which is made where it is in the new /dev."""
    if not target.exists():
        target.mkdir() if source.is_dir() else target.touch()
    _mount(source, target, flags=BIND | RECURSIVE)
    if read_only:
        kept = os.statvfs(target).f_flag & KEPT_FLAGS
        _mount(None, target, flags=BIND | REMOUNT | READ_ONLY | kept)


def _mount(source: object, target: object, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    words = [None if one is None else os.fsencode(str(one)) for one in (source, target, kind, data)]
    _call("mount", words[0], words[1], words[2], ctypes.c_ulong(flags), words[3], about=str(target))


def _call(name: str, *arguments: object, about: str | None = None) -> None:
    """Call a function of the C library. Raises OSError."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), about or name)


def _loopback() -> None:
    """Start the interface ``lo``, which is down in a new namespace: programs talk to themselves through it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sH14x", b"lo", INTERFACE_UP))
