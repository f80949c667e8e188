"""Is the hardware of this process simulated? The simulated NVML library follows the same rule."""

import ctypes
import os
from pathlib import Path
from typing import Any

import msgspec

from gpucheck.model import Limits, LoaderLibrary

DEFAULT = Path("/run/gpucheck-simulator")


def machine_directory() -> Path | None:
    """The directory of the simulated machine: $GPUCHECK_SIMULATOR, else the default where that holds one."""
    chosen = os.environ.get("GPUCHECK_SIMULATOR")
    if chosen:
        return Path(chosen)
    return DEFAULT if (DEFAULT / "simulation.json").exists() else None


class Software(msgspec.Struct, frozen=True):
    """What a simulated machine answers for the services and packages that go with its GPUs."""

    services: dict[str, str]
    packages: dict[str, str]


def software(machine: Path | None) -> Software | None:
    """software.json of the machine; None where the operating system's own packages and services are the answer."""
    if machine is None or not (machine / "software.json").exists():
        return None
    return msgspec.json.decode((machine / "software.json").read_bytes(), type=Software)


VERBS = (LoaderLibrary(soname="libibverbs.so.1", path="/usr/lib64/libibverbs.so.1", source="ldconfig"),)


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulated machine answers in place of what surrounds this process; by default that of a healthy host.

    secure_boot: None leaves it to the machine's own tree. python: simulated versions of installed packages.
    code_runs: the architectures that the simulated torch build was made for, as torch.cuda.get_arch_list names them;
    the build is the local part of its version, as in ``2.7.1+cu126``.
    verbs: libibverbs is in the loader's cache, in addition to libraries.
    open_errors: what opening a device file fails with, by its name, as in gpucheck.model.DeviceFile.
    moving: counters a second, by port and name, as in gpucheck.host.network; None for a port that leaves.
    network: the part of its healthy rate that a network card reaches, by RDMA device, where that is less.
    measurement, training: how copies and training runs go wrong, each a ``fault`` with its parameters.
    """

    shm_bytes: int = 16 << 30
    shm_free_bytes: int | None = None
    memlock_bytes: int = -1
    nofile: int = 1 << 20
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    secure_boot: bool | None = None
    libraries: tuple[LoaderLibrary, ...] = ()
    verbs: bool = True
    python: dict[str, str] = msgspec.field(default_factory=dict)
    code_runs: tuple[str, ...] | None = None
    open_errors: dict[str, str] = msgspec.field(default_factory=dict)
    moving: dict[str, dict[str, float] | None] = msgspec.field(default_factory=dict)
    measurement: tuple[dict[str, Any], ...] = ()
    training: tuple[dict[str, Any], ...] = ()
    network: dict[str, float] = {}

    def wheel_file(self, path: str) -> str | None:
        """A file of a simulated wheel: torch's version.py, which here also lists the GPUs that its code runs on."""
        build = self.python.get("torch", "").partition("+cu")[2]
        if not path.endswith("/torch/version.py") or not build or self.code_runs is None:
            return None
        code = ", ".join(repr(name) for name in self.code_runs)
        return f"cuda: str = '{build[:-1]}.{build[-1]}'\narch_list = [{code}]\n"

    @property
    def limits(self) -> Limits:
        """As a process on the machine would find them; nothing of /dev/shm is in use unless it is stated."""
        free = self.shm_bytes if self.shm_free_bytes is None else self.shm_free_bytes
        return Limits(
            shm_bytes=self.shm_bytes, shm_free_bytes=free, memlock_bytes=self.memlock_bytes, nofile=self.nofile
        )


def surroundings(machine: Path) -> Surroundings:
    """surroundings.json of a machine, a healthy host's where it has none. Raises ValueError for one that is damaged."""
    file = machine / "surroundings.json"
    try:
        return msgspec.json.decode(file.read_bytes(), type=Surroundings)
    except FileNotFoundError:
        return Surroundings()
    except msgspec.DecodeError as error:
        raise ValueError(f"{file}: {error}. Write the simulated machine again.") from error


def preload(soname: str = "libnvidia-ml.so.1") -> None:
    """Load the machine's own library, so that whoever opens it by its soname finds it.

    Where the machine brings none (a host on which a package installed it), the loader's search path decides.
    Raises OSError if there is one that cannot be loaded.
    """
    directory = machine_directory()
    library = directory / "lib" / soname if directory else None
    if library is not None and library.exists():
        ctypes.CDLL(str(library))
