"""Compile the simulated NVML library with the system's C compiler."""

import hashlib
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from gpucheck.simulator.cache import cache_folder, publish

SOURCE = Path(__file__).parent / "nvml" / "libnvidia_ml.c"
SONAME = "libnvidia-ml.so.1"
# Where an environment that has no compiler brings the compiled library along (our container images do).
SHIPPED = "share/gpucheck/libraries"
FLAGS = ("-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{SONAME}")


def build_library(directory: Path, version: str) -> Path:
    """Put ``libnvidia-ml.so.<version>`` and the link ``libnvidia-ml.so.1`` into ``directory``; return the former.

    The library learns its version from its file name, so that one compilation (cached by content) serves every version.
    Raises OSError, with the whole message in args[0], when there is no compiler or it refuses the source.
    """
    if not version or "/" in version:
        raise ValueError(f"libnvidia-ml.so.{version}: not a driver version")
    compiled = _compiled()
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / f"libnvidia-ml.so.{version}"
    # A copy, no hard link: the loader takes two names of one inode for the same library.
    shutil.copyfile(compiled, library)
    library.chmod(0o755)
    link = directory / SONAME
    link.unlink(missing_ok=True)
    link.symlink_to(library.name)
    return library


def _compiled() -> Path:
    key = hashlib.sha256(SOURCE.read_bytes() + " ".join((*FLAGS, platform.machine())).encode()).hexdigest()[:24]
    shipped = Path(sys.prefix, SHIPPED, key, "libnvidia-ml.so")
    if shipped.exists():
        return shipped
    folder = cache_folder("libraries") / key
    if not folder.is_dir():
        publish(folder, _compile)
    return folder / "libnvidia-ml.so"


def _compile(folder: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        raise OSError(
            "the simulator needs a C compiler to build its NVML library, and there is no `cc` on PATH. "
            "Install one: apt install gcc libc6-dev, or: dnf install gcc glibc-devel"
        )
    command = [compiler, *FLAGS, "-o", str(folder / "libnvidia-ml.so"), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(
            f"{compiler} could not compile the simulated NVML library: {done.stderr.strip()[-1000:]}\n"
            "Install the C headers too: apt install libc6-dev, or: dnf install glibc-devel"
        )
