"""What surrounds this process: its limits, the variables that steer it, and the libraries that it would load."""

import os
import platform
import re
import resource
from collections.abc import Iterable, Iterator, Mapping

from gpucheck.host.driver import output
from gpucheck.host.readers.files import folder_names
from gpucheck.host.readers.programs import cached_libraries
from gpucheck.model import Limits, LoaderLibrary

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - only its size is read
STEERING = re.compile(
    r"(NCCL|CUDA|CUDNN|CUBLAS|CUPY|NVIDIA|NVSHMEM|NV_LIBNCCL|TORCH|PYTORCH|TF|XLA|GLOO|UCX|FI|OMP|MKL|KMP)_\w+"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|MASTER_ADDR|MASTER_PORT|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|PYTHONPATH"
    # Inside a scheduler's job the devices that CUDA may see are the job's, not a leftover setting.
    r"|SLURM_(JOB_ID|JOB_GPUS|STEP_ID|STEP_GPUS|GPUS_ON_NODE)|PBS_JOBID|LSB_JOBID|FLUX_JOB_ID"
)
# NVIDIA_API_KEY has the right beginning but is a secret.
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL", re.IGNORECASE)


def read_limits() -> Limits:
    """The size of shared memory from statvfs, the soft resource limits from getrlimit."""
    try:
        shared = os.statvfs(SHARED_MEMORY)
    except OSError:
        shared = None
    return Limits(
        shm_bytes=shared.f_frsize * shared.f_blocks if shared else None,
        shm_free_bytes=shared.f_frsize * shared.f_bavail if shared else None,
        memlock_bytes=_soft(resource.RLIMIT_MEMLOCK),
        nofile=_soft(resource.RLIMIT_NOFILE),
    )


def _soft(which: int) -> int:
    soft, _ = resource.getrlimit(which)
    return -1 if soft == resource.RLIM_INFINITY else soft


def steering(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that steer CUDA, NCCL, the loader and the frameworks, by name; a secret among them is left out."""
    return {
        name: environment[name] for name in sorted(environment) if STEERING.fullmatch(name) and not SECRET.search(name)
    }


def read_libraries(names: Iterable[str], search_path: str) -> tuple[LoaderLibrary, ...] | None:
    """Return what the loader would find: the folders of LD_LIBRARY_PATH first, then its cache; names without ``.so``.

    None where the cache cannot be listed, as without ldconfig.
    """
    wanted = tuple(dict.fromkeys(names))
    listing = output(["ldconfig", "-p"]) or output(["/sbin/ldconfig", "-p"])
    if not listing:
        return None
    found = [*_on_search_path(search_path), *cache_entries(listing)]
    return tuple(library for library in found if belongs(library.soname, wanted))


def belongs(soname: str, names: Iterable[str]) -> bool:
    """Whether ``libcudart.so.12`` is one of these names, such as ``libcudart``."""
    return soname.partition(".so")[0] in names and ".so" in soname


def _on_search_path(search_path: str) -> Iterator[LoaderLibrary]:
    """An empty part means the current directory to the loader."""
    for part in search_path.split(":") if search_path else ():
        folder = part or "."
        for name in folder_names(folder) or ():
            if ".so" in name:
                yield LoaderLibrary(soname=name, path=f"{folder.rstrip('/')}/{name}", source="LD_LIBRARY_PATH")


def cache_entries(listing: str) -> Iterator[LoaderLibrary]:
    """The lines of ``ldconfig -p`` for this process' kind of library: on a 64-bit system those marked with a 64."""
    for row in cached_libraries(listing):
        if ("64" in row.kind) == ("64" in platform.machine()):
            yield LoaderLibrary(soname=row.soname, path=row.path, source="ldconfig")
