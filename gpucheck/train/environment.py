"""The environment of a rank: the caller's, without what a job or a past experiment may have left in it."""

import re
from collections.abc import Mapping

from gpucheck.train.spec import SmokeOptions

# A leftover NCCL_P2P_DISABLE hides the fault that the run should find, a leftover NCCL_TOPO_FILE invents one, and a
# leftover MASTER_ADDR or RANK of a launcher sends the rank to somebody else's rendezvous.
_LEFTOVERS = re.compile(
    r"(NCCL|TORCH_NCCL|TORCH_DISTRIBUTED|TORCHELASTIC|GLOO|TP)_.*|TORCH_CPP_LOG_LEVEL|TORCH_SHOW_CPP_STACKTRACES"
    r"|MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME"
    r"|CUDA_LAUNCH_BLOCKING|CUBLAS_WORKSPACE_CONFIG|PYTORCH_CUDA_ALLOC_CONF|PYTORCH_ALLOC_CONF|NVIDIA_TF32_OVERRIDE"
)

_OURS = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NCCL_DEBUG": "WARN",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # bit-equal repeats need a fixed cuBLAS workspace
    "PYTHONUNBUFFERED": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",  # TensorFlow tells what its build can do on every import
}


def rank_environment(caller: Mapping[str, str], options: SmokeOptions) -> tuple[dict[str, str], tuple[str, ...]]:
    """The ranks' environment, and ``NAME=value`` of each variable of the caller's that was kept from them."""
    removed = tuple(sorted(name for name in caller if _LEFTOVERS.fullmatch(name)))
    kept = {name: value for name, value in caller.items() if name not in removed}
    # On one host, loopback always resolves; the host's own name often does not.
    interface = (options.nodes.interface if options.nodes else "lo") or ""
    ours = _OURS | ({"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface} if interface else {})
    if options.visible_devices is not None:
        ours["CUDA_VISIBLE_DEVICES"] = options.visible_devices
    return kept | ours, tuple(f"{name}={caller[name]}" for name in removed)
