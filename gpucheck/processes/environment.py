"""The environment of children: the caller's, without what a job or a past experiment may have left in it."""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpucheck.processes.ranks.nodes import Nodes

# A leftover CUDA_LAUNCH_BLOCKING makes every launch wait; an allocator's setting changes copies and peer access.
# Without the JIT compiler, or with it alone, kernels that other builds hold do not load (CUDA programming guide).
# CUBLAS_EMULATE_SINGLE_PRECISION makes cuBLAS compute fp32 by bf16 (cuBLAS 13): another rate, other bits.
_CUDA = (
    r"CUDA_LAUNCH_BLOCKING|CUBLAS_WORKSPACE_CONFIG|PYTORCH_CUDA_ALLOC_CONF|PYTORCH_ALLOC_CONF|NVIDIA_TF32_OVERRIDE"
    r"|PYTORCH_NO_CUDA_MEMORY_CACHING|CUDA_(DISABLE|FORCE)_(PTX_)?JIT|CUBLAS_EMULAT\w*"
)
# A leftover NCCL_P2P_DISABLE hides the fault that a run should find, a leftover NCCL_TOPO_FILE invents one, and a
# leftover MASTER_ADDR or RANK of a launcher sends a rank to another run's rendezvous.
_LEFTOVERS = re.compile(
    r"(NCCL|TORCH_NCCL|TORCH_DISTRIBUTED|TORCHELASTIC|GLOO|TP)_.*|TORCH_CPP_LOG_LEVEL|TORCH_SHOW_CPP_STACKTRACES"
    rf"|MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|{_CUDA}"
)
# Of a process that only copies: also what is loaded into it, and what its CUDA does with peers and queues.
_COPYING = re.compile(rf"{_CUDA}|CUDA_DISABLE_PEER_ACCESS|CUDA_DEVICE_MAX_CONNECTIONS|LD_PRELOAD")
# Between hosts these depend on the cluster: which network, not how to use it.
_NETWORK = re.compile(r"(NCCL|GLOO)_SOCKET_IFNAME|NCCL_IB_(HCA|DISABLE|GID_INDEX|TC|SL)|NCCL_NET|NCCL_NET_PLUGIN")
SYSTEM_CONF, USER_CONF = Path("/etc/nccl.conf"), Path(".nccl.conf")
SET_FOR_RANKS = {"OMP_NUM_THREADS": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONUNBUFFERED": "1"}
# 32: eight GPUs that all copy to each other use 14 streams a device, and by default 8 of them run at the same time.
SET_FOR_COPIES = {
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "CUDA_DEVICE_MAX_CONNECTIONS": "32",
    "PYTHONUNBUFFERED": "1",
}


def rank_environment(caller: Mapping[str, str], nodes: "Nodes | None") -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what ranks get, and ``NAME=value`` of each variable of the caller's that they do not get.

    They communicate by the interface of the nodes; a site's own choice for several hosts goes first. On one host
    loopback always resolves, the host's own name often does not.
    """
    several, interface = _several_hosts(nodes), nodes.interface if nodes else "lo"
    removed = (n for n in caller if _LEFTOVERS.fullmatch(n) and not (several and _NETWORK.fullmatch(n)))
    kept, pairs = _without(caller, removed)
    network = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface} if interface else {}
    # In place of ~/.nccl.conf, where sites of several hosts name their network.
    file = {} if several else {"NCCL_CONF_FILE": "/dev/null"}
    return network | kept | SET_FOR_RANKS | file, pairs


def copying_environment(caller: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what a process that copies between GPUs gets, and ``NAME=value`` of each variable that it does not get."""
    kept, pairs = _without(caller, filter(_COPYING.fullmatch, caller))
    return kept | SET_FOR_COPIES, pairs


def independent(caller: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child that runs in another directory: relative paths in it are the caller's.

    An empty part of PYTHONPATH, which a trailing colon leaves, would be the directory itself.
    """
    made = dict(caller)
    if caller.get("PYTHONPATH"):
        places = filter(None, caller["PYTHONPATH"].split(os.pathsep))
        made["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, places))
    if caller.get("GPUCHECK_SIMULATOR"):
        made["GPUCHECK_SIMULATOR"] = os.path.abspath(caller["GPUCHECK_SIMULATOR"])  # noqa: PTH100 - a variable
    return made


def _several_hosts(nodes: "Nodes | None") -> bool:
    return nodes is not None and nodes.interface != "lo"


def nccl_files(home: Path, nodes: "Nodes | None", system: Path = SYSTEM_CONF) -> tuple[str, ...]:
    """Return ``FILE: NAME=value`` of each setting that NCCL takes from files, independent of the environment.

    NCCL reads /etc/nccl.conf even where NCCL_CONF_FILE names another file (initEnvFunc in its src/misc/param.cc).
    """
    files = (home / USER_CONF, system) if _several_hosts(nodes) else (system,)
    return tuple(line for path in files for line in _settings(path))


def _settings(path: Path) -> Iterator[str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return
    except OSError as error:
        yield f"{path}: cannot be read: {error.strerror}"
        return
    yield from (f"{path}: {line.strip()}" for line in lines if "=" in line and not line.startswith("#"))


def _without(caller: Mapping[str, str], removed: Iterable[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables without these, and ``NAME=value`` of these."""
    names = sorted(removed)
    kept = {name: value for name, value in caller.items() if name not in names}
    return kept, tuple(f"{name}={caller[name]}" for name in names)


# The directory of this package, which may not be installed: python -m gpucheck in a checkout.
ROOT = str(Path(__file__).parents[2])
# Of a -c program whose first argument is ROOT; sys is a builtin module.
PLACES = (
    "import sys; sys.path[:] = filter(None, sys.path); root = sys.argv.pop(1); "
    "sys.path[:0] = [] if root in sys.path else [root]; "
)
MODULE = f"{PLACES}import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"


def python_module(name: str) -> tuple[str, ...]:
    """Return the words that run a module with this Python, as ``-m`` does; its arguments go after them."""
    return (sys.executable, "-c", MODULE, ROOT, name)
