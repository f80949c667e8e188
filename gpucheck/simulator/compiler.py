"""The simulator's libraries: contained in this installation, or compiled by the system's C compiler and cached."""

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from gpucheck.simulator.cache import cache_folder, publish, use
from gpucheck.simulator.nvml.library import Export, exports, unsimulated_rows, version_script

HERE = Path(__file__).parent
NVML, CUDA = HERE / "nvml", HERE / "cuda"
# <key>/<library>, in wheels for a platform and in our container images: no compiler is needed there.
SHIPPED = HERE / "libraries"
FLAGS = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-pthread")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
NVML_NAME, CUDA_NAME = "libnvidia-ml.so", "libcuda.so"


def build_library(directory: Path, version: str, release: str | None = None) -> Path:
    """Put ``libnvidia-ml.so.<version>`` and the link ``libnvidia-ml.so.1`` into ``directory``; return the former.

    The library learns its version from its file name, so that one compilation (cached by content) serves every version
    that exports the same functions. release: the version whose functions it exports, where not its own.
    Raises ValueError for an invalid version, OSError, with the whole message in args[0], when there is no compiler or
    it rejects the source.
    """
    chosen = exports(release or version)
    if not chosen:
        raise ValueError(f"{NVML_NAME}.{version}: no function is known that an NVML this old exports")
    key = nvml_key(platform.machine(), chosen)
    return _installed(directory, NVML_NAME, version, key, lambda partial: compile_library(partial, chosen))


def build_cuda_library(directory: Path, version: str) -> Path:
    """The same for ``libcuda.so``."""
    return _installed(directory, CUDA_NAME, version, cuda_key(platform.machine()), compile_cuda_library)


def compile_library(
    folder: Path, chosen: tuple[Export, ...], flags: Sequence[str] = (), compiler: Sequence[str] = ()
) -> Path:
    """Compile ``libnvidia-ml.so`` with these exports into ``folder``, with additional compiler ``flags``.

    compiler: its command and options, by default ``cc`` with warnings as errors. Raises OSError as above.
    """
    (folder / "unsimulated.inc").write_text(unsimulated_rows(chosen), encoding="utf-8")
    script = folder / "exports.map"
    script.write_text(version_script(chosen), encoding="utf-8")
    own: tuple[str | Path, ...] = (*flags, f"-I{folder}", f"-Wl,--version-script={script}", *sorted(NVML.glob("*.c")))
    return _compile("NVML", folder / NVML_NAME, own, compiler)


def compile_cuda_library(folder: Path, flags: Sequence[str] = (), compiler: Sequence[str] = ()) -> Path:
    """The same for ``libcuda.so``, which has one set of exports."""
    own: tuple[str | Path, ...] = ("-fvisibility=hidden", *flags, *_cuda_sources(), "-lm", "-ldl")
    return _compile("CUDA driver", folder / CUDA_NAME, own, compiler)


def nvml_key(machine: str, chosen: tuple[Export, ...]) -> str:
    """What identifies the library with these exports for a machine (x86_64)."""
    return _source_key((NVML_NAME, machine, str(chosen)), sorted(NVML.glob("*.[ch]")))


def cuda_key(machine: str) -> str:
    """The same for the CUDA driver library."""
    headers = sorted((*CUDA.glob("*.h"), NVML / "simulator.h"))
    return _source_key((CUDA_NAME, machine), (*_cuda_sources(), *headers))


def _cuda_sources() -> list[Path]:
    return [*sorted(CUDA.glob("*.c")), NVML / "table.c"]  # both libraries read the same kind of file


def _compile(what: str, output: Path, words: Iterable[str | Path], compiler: Sequence[str]) -> Path:
    """Compile a shared library into ``output`` and return it. what: its name in messages."""
    if not compiler:
        found = shutil.which("cc")
        if found is None:
            raise OSError(
                f"the simulator needs a C compiler to build its {what} library, and there is no `cc` on PATH. "
                "Install one: apt install gcc libc6-dev, or: dnf install gcc glibc-devel. "
                "The wheels and packages for Linux on x86_64 and aarch64 contain the library"
            )
        compiler = (found, *WARNINGS)
    command = [*compiler, *FLAGS, f"-Wl,-soname,{output.name}.1", "-o", output, *words]
    # Its temporary files too: a compiler that a signal ends leaves them, and this folder is removed.
    environment = os.environ | {"TMPDIR": str(output.parent)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(
            f"{compiler[0]} could not compile the simulated {what} library: {done.stderr.strip()[-1000:]}\n"
            "Install the C headers too: apt install libc6-dev, or: dnf install glibc-devel"
        )
    return output


def _source_key(parts: Iterable[str], sources: Iterable[Path]) -> str:
    digest = hashlib.sha256(" ".join((*FLAGS, *parts)).encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:24]


def _installed(directory: Path, name: str, version: str, key: str, build: Callable[[Path], object]) -> Path:
    """Put the library of this key, shipped, cached or built now, into ``directory``; return its path there."""
    if not version or "/" in version:
        raise ValueError(f"{name}.{version}: not a driver version")
    library = SHIPPED / key / name
    if not library.exists():
        entry = cache_folder("libraries") / key
        if not use(entry):
            publish(entry, build)
        library = entry / name
    directory.mkdir(parents=True, exist_ok=True)
    installed = directory / f"{name}.{version}"
    # A copy, no hard link: the loader takes two names of one inode for the same library.
    shutil.copyfile(library, installed)
    installed.chmod(0o755)
    link = directory / f"{name}.1"
    link.unlink(missing_ok=True)
    link.symlink_to(installed.name)
    return installed
