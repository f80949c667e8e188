"""Windows Subsystem for Linux: what it does not have by design, by check.

The GPU belongs to Windows. Programs reach it through /dev/dxg; in Linux there is no kernel module, no device file of
NVIDIA and no PCI device, and NVML lists no processes (NVIDIA CUDA on WSL user guide, known limitations).
"""

from gpucheck.model import Finding
from gpucheck.model.finding.about import About

WSL = "wsl"
MODULE = "the kernel module is that of the Windows driver"
BUS = "WSL shows no PCI device of the GPU"
ABSENT = {
    "device-nodes": "programs reach the GPU through /dev/dxg",
    "module-flavour": MODULE,
    "next-boot": MODULE,
    "persistence": "Windows keeps the driver initialized",
    "processes": "NVML does not list processes in WSL",
    **dict.fromkeys(("acs", "bar1", "iommu", "numa", "pcie-errors", "pcie-link", "pcie-path"), BUS),
}


def absent(check: str, virtual: str | None) -> Finding | None:
    """Return the SKIP of a check whose subject does not exist in this kind of virtual machine."""
    why = ABSENT.get(check) if virtual == WSL else None
    return About(check=check).skips(f"not applicable: {why}") if why else None
