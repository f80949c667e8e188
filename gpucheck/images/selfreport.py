"""What the CUDA libraries of this environment say of themselves: no GPU and no driver is needed, and none is asked.

Run as a module it prints one JSON object; the parent gives it a deadline, because loading a library can end a process.
Version codes: CUDA 1000 x major + 10 x minor; NCCL and cuDNN 9 10000 x major + 100 x minor + patch (their headers).
"""

import ctypes
import errno
import json
import os
import sys
import sysconfig
from pathlib import Path

DEVICE = "/dev/nvidiactl"
DRIVER = "libcuda.so.1"
# Part -> the file's beginning, the call, and whether the call writes through a pointer (cuDNN returns its number).
LIBRARIES = {
    "cuda": ("libcudart.so.", "cudaRuntimeGetVersion", True),
    "cudnn": ("libcudnn.so.", "cudnnGetVersion", False),
    "nccl": ("libnccl.so.", "ncclGetVersion", True),
}


def copies(folder: Path, start: str) -> list[str]:
    """The files of one library below a site-packages folder; links to the same file count once."""
    return sorted({str(path.resolve()) for path in folder.glob(f"nvidia/**/{start}*") if path.is_file()})


def library_version(path: str, call: str, *, pointer: bool) -> int:
    """What a library answers. Raises OSError when it does not load or refuses."""
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
    """``13.2`` for CUDA, ``2.30.7`` for the others. cuDNN before 9 counted 1000 x major."""
    if part == "cuda":
        return f"{code // 1000}.{code % 1000 // 10}"
    step = 1000 if part == "cudnn" and code < 10000 else 10000
    return f"{code // step}.{code % step // 100}.{code % 100}"


def report(folder: Path) -> dict[str, dict[str, object]]:
    """Each library that is there: ``paths``, and ``version`` or ``error``."""
    found: dict[str, dict[str, object]] = {}
    for part, (start, call, pointer) in LIBRARIES.items():
        paths = copies(folder, start)
        if not paths:
            continue
        row: dict[str, object] = {"paths": paths}
        try:
            row["version"] = in_words(part, library_version(paths[0], call, pointer=pointer))
        except (OSError, AttributeError) as error:
            row["error"] = str(error)
        found[part] = row
    return found


def device_access(path: str = DEVICE) -> str | None:
    """Whether the driver's control device can be opened: ``open``, the errno's name, None where it is not there.

    EPERM, with the file there, is how a container looks that lost its devices after it had started.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return None
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "open"


def driver_library(name: str = DRIVER) -> str:
    """Return ``loaded``, or the loader's message. Only the loader searches all places: LD_LIBRARY_PATH, its cache."""
    try:
        ctypes.CDLL(name)
    except OSError as error:
        return str(error)
    return "loaded"


if __name__ == "__main__":
    packages = Path(sysconfig.get_path("purelib"))
    libraries = {} if "--quick" in sys.argv else report(packages)
    print(json.dumps({"device": device_access(), "driver": driver_library(), "libraries": libraries}))
