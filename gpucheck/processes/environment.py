"""The environment of ranks: the caller's, without what a job or a past experiment may have left in it."""

import re
from collections.abc import Mapping

# A leftover NCCL_P2P_DISABLE hides the fault that a run should find, a leftover NCCL_TOPO_FILE invents one, and a
# leftover MASTER_ADDR or RANK of a launcher sends a rank to somebody else's rendezvous.
_LEFTOVERS = re.compile(
    r"(NCCL|TORCH_NCCL|TORCH_DISTRIBUTED|TORCHELASTIC|GLOO|TP)_.*|TORCH_CPP_LOG_LEVEL|TORCH_SHOW_CPP_STACKTRACES"
    r"|MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME"
    r"|CUDA_LAUNCH_BLOCKING|CUBLAS_WORKSPACE_CONFIG|PYTORCH_CUDA_ALLOC_CONF|PYTORCH_ALLOC_CONF|NVIDIA_TF32_OVERRIDE"
)
# Between hosts these are the site's own business: which network, not how to use it.
_NETWORK = re.compile(r"(NCCL|GLOO)_SOCKET_IFNAME|NCCL_IB_(HCA|DISABLE|GID_INDEX|TC|SL)|NCCL_NET|NCCL_NET_PLUGIN")
OURS = {"OMP_NUM_THREADS": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONUNBUFFERED": "1"}


def rank_environment(
    caller: Mapping[str, str], *, interface: str | None, several_hosts: bool
) -> tuple[dict[str, str], tuple[str, ...]]:
    """What ranks get, and ``NAME=value`` of each variable of the caller's that was kept from them.

    interface: where the ranks talk, None leaves it to them; a site's own choice for several hosts goes first.
    """
    removed = tuple(
        sorted(n for n in caller if _LEFTOVERS.fullmatch(n) and not (several_hosts and _NETWORK.fullmatch(n)))
    )
    kept = {name: value for name, value in caller.items() if name not in removed}
    talk = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface} if interface else {}
    return talk | kept | OURS, tuple(f"{name}={caller[name]}" for name in removed)
