"""Query the versions of the CUDA libraries in this environment; needs no GPU and no driver.

Run as a module it prints one JSON object; the parent gives it a deadline, because loading a library can end a process.
Version codes: CUDA 1000 x major + 10 x minor; NCCL and cuDNN 9 10000 x major + 100 x minor + patch (their headers).
"""

import ctypes
import errno
import os
import sys
import sysconfig
from pathlib import Path

import msgspec

UNMAPPED = 65534
DEVICE = "/dev/nvidiactl"
DRIVER = "libcuda.so.1"
# Directories of the driver's libraries: Apptainer, GKE, WSL, NixOS, and distributions on both architectures.
DRIVER_FOLDERS = (
    "/.singularity.d/libs",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
)
# Libraries in wheels: another copy in a directory of LD_LIBRARY_PATH is loaded instead.
CARRIED = (
    *("libcudart.so", "libcudnn", "libnccl.so", "libcublas", "libcufft", "libcurand.so"),
    *("libcusolver", "libcusparse", "libnvrtc", "libnvJitLink.so", "libcupti.so"),
)
RDMA_DEVICES = "/dev/infiniband"
RDMA_LIBRARY = "libibverbs.so.1"
# Component -> start of the file name, call, whether the call writes through a pointer (cuDNN returns its number).
LIBRARIES = {
    "cuda": ("libcudart.so.", "cudaRuntimeGetVersion", True),
    "cudnn": ("libcudnn.so.", "cudnnGetVersion", False),
    "nccl": ("libnccl.so.", "ncclGetVersion", True),
}


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """A CUDA library of the framework. version: as the library reports it; error: why it does not."""

    paths: tuple[str, ...]
    version: str | None = None
    error: str | None = None


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """Mode (octal), owner and group of the driver's control device, and the ids of this process."""

    mode: str
    uid: int
    gid: int
    process_uid: int
    process_gids: tuple[int, ...]

    @property
    def allow(self) -> bool:
        """Return whether the file's mode lets this process read and write; then something else denies access."""
        bits = int(self.mode, 8)
        # Root of a user namespace (rootless) is not the host's: files of users outside it show this owner.
        if self.process_uid == 0 and self.uid != UNMAPPED:
            return True
        shift = 6 if self.process_uid == self.uid else 3 if self.gid in self.process_gids else 0
        return bits >> shift & 6 == 6

    def __str__(self) -> str:
        groups = " ".join(map(str, self.process_gids))
        return f"mode {self.mode}, owner {self.uid}:{self.gid}; this process: user {self.process_uid}, groups {groups}"


class SelfReport(msgspec.Struct, frozen=True, kw_only=True):
    """The output of the child process: library by component (cuda, cudnn, nccl).

    device: /dev/nvidiactl: ``open``, an errno's name, None if it is missing; rights: of that file.
    driver: libcuda.so.1: ``loaded``, the loader's message, None if unknown; driver_files: its paths.
    shadowing: by directory of LD_LIBRARY_PATH, the libraries there that the wheels also include.
    rdma: InfiniBand and RoCE devices in this container. verbs: libibverbs.so.1, as driver.
    """

    device: str | None = None
    rights: Rights | None = None
    driver: str | None = None
    driver_files: tuple[str, ...] = ()
    shadowing: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    rdma: tuple[str, ...] = ()
    verbs: str | None = None
    libraries: dict[str, Library] = msgspec.field(default_factory=dict)
    error: str | None = None


def copies(folder: Path, start: str) -> list[str]:
    """Return the files of one library in a site-packages directory; links to the same file count once."""
    return sorted({str(path.resolve()) for path in folder.glob(f"nvidia/**/{start}*") if path.is_file()})


def library_version(path: str, call: str, *, pointer: bool) -> int:
    """Return the version code of a library. Raises OSError if it does not load or its call fails."""
    function = getattr(ctypes.CDLL(path), call)
    if not pointer:
        function.restype = ctypes.c_size_t
        return int(function())
    out = ctypes.c_int()
    status = int(function(ctypes.byref(out)))
    if status:
        raise OSError(f"{call} returned {status}")
    return out.value


def in_words(part: str, code: int) -> str:
    """Return ``13.2`` for CUDA, ``2.30.7`` for the others. cuDNN before 9 used 1000 x major."""
    if part == "cuda":
        return f"{code // 1000}.{code % 1000 // 10}"
    step = 1000 if part == "cudnn" and code < 10000 else 10000
    return f"{code // step}.{code % step // 100}.{code % 100}"


def report(folder: Path) -> dict[str, Library]:
    """Return each installed library."""
    found = {}
    for part, (start, call, pointer) in LIBRARIES.items():
        paths = copies(folder, start)
        try:
            version = in_words(part, library_version(paths[0], call, pointer=pointer)) if paths else None
            found[part] = Library(paths=tuple(paths), version=version)
        except (OSError, AttributeError) as error:
            found[part] = Library(paths=tuple(paths), error=str(error))
    return {part: library for part, library in found.items() if library.paths}


def device_access(path: str = DEVICE) -> str | None:
    """Return whether the driver's control device opens: ``open``, the errno's name, None if it is missing.

    EPERM for an existing file means that the container lost its devices after it was started.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return None
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "open"


def device_rights(path: str = DEVICE) -> Rights | None:
    """Return the rights of the control device; None without a file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - one call for a name in a message
    except OSError:
        return None
    return Rights(
        mode=f"{found.st_mode & 0o7777:04o}",
        uid=found.st_uid,
        gid=found.st_gid,
        process_uid=os.geteuid(),
        process_gids=tuple(sorted({os.getegid(), *os.getgroups()})),
    )


def driver_files() -> tuple[str, ...]:
    """Return the paths of the driver's library in known directories, even if the loader does not search them."""
    return tuple(path for folder in DRIVER_FOLDERS if os.path.exists(path := f"{folder}/{DRIVER}"))  # noqa: PTH110 - as above


def shadowing(search_path: str) -> dict[str, tuple[str, ...]]:
    """Return directories of LD_LIBRARY_PATH with libraries that wheels also include, with the file names."""
    found = {}
    for folder in dict.fromkeys(part for part in search_path.split(":") if part):
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208 - as above
        except OSError:
            continue
        if own := [name for name in names if name.startswith(CARRIED)]:
            found[folder] = tuple(own)
    return found


def rdma_devices() -> tuple[str, ...]:
    try:
        return tuple(sorted(name for name in os.listdir(RDMA_DEVICES) if name.startswith("uverbs")))  # noqa: PTH208 - as above
    except OSError:
        return ()


def loads(name: str = DRIVER) -> str:
    """Return ``loaded``, or the loader's message. Only the loader searches all places: LD_LIBRARY_PATH, its cache."""
    try:
        ctypes.CDLL(name)
    except OSError as error:
        return str(error)
    return "loaded"


if __name__ == "__main__":
    answer = SelfReport(
        device=device_access(),
        rights=device_rights(),
        driver=loads(DRIVER),
        driver_files=driver_files(),
        libraries={} if "--quick" in sys.argv else report(Path(sysconfig.get_path("purelib"))),
        shadowing=shadowing(os.environ.get("LD_LIBRARY_PATH", "")),
        rdma=rdma_devices(),
        verbs=loads(RDMA_LIBRARY),
    )
    print(msgspec.json.encode(answer).decode())
