"""The environment of the ranks of a training test: cleaned, repeatable, and on the requested devices."""

from collections.abc import Mapping

from gpucheck.processes import environment
from gpucheck.train.spec import SmokeOptions

_SET = {
    "MKL_NUM_THREADS": "1",
    "NCCL_DEBUG": "WARN",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # bit-equal repeats need a fixed cuBLAS workspace
    "TF_CPP_MIN_LOG_LEVEL": "2",  # TensorFlow prints the features of its build on every import
}


# Sums that the switch makes may differ from call to call in the last bit (NVIDIA/nccl issues 1497 and 2360).
NVLS = "nvls"


def rank_environment(caller: Mapping[str, str], options: SmokeOptions) -> tuple[dict[str, str], tuple[str, ...]]:
    """The ranks' environment, and ``NAME=value`` of each variable of the caller's that was removed."""
    # On one host, loopback always resolves; the host's own name often does not.
    interface = options.nodes.interface if options.nodes else "lo"
    kept, removed = environment.rank_environment(
        caller, interface=interface, several_hosts=options.nodes is not None and interface != "lo"
    )
    devices = {} if options.visible_devices is None else {"CUDA_VISIBLE_DEVICES": options.visible_devices}
    return kept | _SET | {"NCCL_NVLS_ENABLE": str(int(options.variant == NVLS))} | devices, removed
