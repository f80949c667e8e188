"""Compute trays of a rack: GPUs whose NVLinks lead to switch trays of their own, as on GB200 and GB300 NVL72.

Nothing on such a host manages the fabric: the NVLink switches are registered and partitioned on the switch trays, and
IMEX on the compute trays shares memory between them.
"""

from gpucheck.knowledge import GpuModel, find_gpu, gpu_by_pci_id
from gpucheck.model import Gpu

SWITCH_TRAYS = (
    "nvidia-smi -q | grep -A 12 Fabric\n"
    "On the switch trays of the rack: check the NVLink control plane (NMX Controller) and the partition of this tray.\n"
    "On this tray: gpucheck verify --only nvlink,imex"
)


def model_of(gpu: Gpu) -> GpuModel | None:
    """Return the row of the GPU table: by what the driver calls the GPU, which knows ids that are not in the table."""
    return find_gpu(gpu.name) or gpu_by_pci_id(gpu.device_id)


def is_tray_gpu(gpu: Gpu) -> bool:
    """Whether the GPU belongs to a rack's fabric: by its name, else by its cluster, else by its PCI id."""
    named, numbered = find_gpu(gpu.name), gpu_by_pci_id(gpu.device_id)
    if named is not None:
        return named.fabric == "imex"
    return in_cluster(gpu) or (numbered is not None and numbered.fabric == "imex")


def is_nvlink5_board(gpu: Gpu) -> bool:
    """Whether the GPU is one of an HGX B200 or B300, whose switches no PCI device shows: they are managed through the
    InfiniBand functions of the board, by fabric manager and NVLSM.
    """
    model = model_of(gpu)
    return model is not None and model.fabric == "nvlink5"


def in_cluster(gpu: Gpu) -> bool:
    """Whether the driver reports a cluster that the GPU shares with other hosts."""
    return gpu.fabric is not None and gpu.fabric.spans_hosts
