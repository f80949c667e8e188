"""Compile the simulated NVML library with the system's C compiler."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from gpucheck.simulator.cache import publish, use
from gpucheck.simulator.cache_place import cache_folder
from gpucheck.simulator.nvml.exports import Export, exports, unsimulated_rows, version_script

SOURCES = Path(__file__).parent
SONAME = "libnvidia-ml.so.1"
# Where an environment that has no compiler brings compiled libraries along (our container images do).
SHIPPED = "share/gpucheck/libraries"
FLAGS = (
    *("-std=gnu11", "-O2", "-shared", "-fPIC", "-pthread"),
    *("-Wall", "-Wextra", "-Wpedantic", "-Werror"),
    f"-Wl,-soname,{SONAME}",
)


def build_library(directory: Path, version: str, release: str | None = None) -> Path:
    """Put ``libnvidia-ml.so.<version>`` and the link ``libnvidia-ml.so.1`` into ``directory``; return the former.

    The library learns its version from its file name, so that one compilation (cached by content) serves every version
    that exports the same functions. release: the version whose functions it exports, where not its own.
    Raises OSError, with the whole message in args[0], when there is no compiler or it refuses the source.
    """
    if not version or "/" in version:
        raise ValueError(f"libnvidia-ml.so.{version}: not a driver version")
    chosen = exports(release or version)
    if not chosen:
        raise ValueError(f"libnvidia-ml.so.{version}: no function is known that an NVML this old exports")
    compiled = _compiled(chosen)
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / f"libnvidia-ml.so.{version}"
    # A copy, no hard link: the loader takes two names of one inode for the same library.
    shutil.copyfile(compiled, library)
    library.chmod(0o755)
    link = directory / SONAME
    link.unlink(missing_ok=True)
    link.symlink_to(library.name)
    return library


def compile_library(folder: Path, chosen: tuple[Export, ...], flags: tuple[str, ...] = ()) -> Path:
    """Compile ``libnvidia-ml.so`` with these exports into ``folder``, with additional compiler ``flags``.

    Raises OSError as ``build_library`` does.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise OSError(
            "the simulator needs a C compiler to build its NVML library, and there is no `cc` on PATH. "
            "Install one: apt install gcc libc6-dev, or: dnf install gcc glibc-devel"
        )
    (folder / "unsimulated.inc").write_text(unsimulated_rows(chosen), encoding="utf-8")
    script = folder / "exports.map"
    script.write_text(version_script(chosen), encoding="utf-8")
    library = folder / "libnvidia-ml.so"
    command = [compiler, *FLAGS, *flags, f"-I{folder}", f"-Wl,--version-script={script}", "-o", str(library)]
    done = subprocess.run([*command, *map(str, _sources())], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(
            f"{compiler} could not compile the simulated NVML library: {done.stderr.strip()[-1000:]}\n"
            "Install the C headers too: apt install libc6-dev, or: dnf install glibc-devel"
        )
    return library


def _sources() -> list[Path]:
    return sorted(SOURCES.glob("*.c"))


def _compiled(chosen: tuple[Export, ...]) -> Path:
    digest = hashlib.sha256(" ".join((*FLAGS, platform.machine(), str(chosen))).encode())
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    key = digest.hexdigest()[:24]
    shipped = Path(sys.prefix, SHIPPED, key, "libnvidia-ml.so")
    if shipped.exists():
        return shipped
    folder = cache_folder("libraries") / key
    descriptor = use(folder)
    if descriptor is None:
        publish(folder, lambda partial: compile_library(partial, chosen))
    else:
        os.close(descriptor)  # used a moment ago, which keeps it long enough to be copied
    return folder / "libnvidia-ml.so"
