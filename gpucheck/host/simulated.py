"""Is the hardware of this process simulated? The simulated NVML library follows the same rule."""

import ctypes
import os
from pathlib import Path

import msgspec

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


def preload() -> None:
    """Load the machine's own NVML library, so that pynvml's ``CDLL("libnvidia-ml.so.1")`` finds it by its soname.

    Where the machine brings none (a host on which a package installed it), the loader's search path decides.
    Raises OSError if there is one that cannot be loaded.
    """
    directory = machine_directory()
    library = directory / "lib" / "libnvidia-ml.so.1" if directory else None
    if library is not None and library.exists():
        ctypes.CDLL(str(library))
