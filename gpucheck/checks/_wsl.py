"""Windows Subsystem for Linux: what it does not have by design, by check.

The GPU belongs to Windows. Programs reach it through /dev/dxg; in Linux there is no kernel module, no device file of
NVIDIA and no PCI device, and NVML lists no processes (NVIDIA CUDA on WSL user guide, known limitations).
"""

from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding

WSL = "wsl"
# The code of each.
ABSENT = {
    "device-nodes": "session.wsl-device-file",
    "module-flavour": "session.wsl-kernel-module",
    "next-boot": "session.wsl-kernel-module",
    "persistence": "session.wsl-persistence",
    "processes": "session.wsl-processes",
    **dict.fromkeys(
        ("acs", "bar1", "iommu", "numa", "pcie-errors", "pcie-link", "pcie-path"), "session.wsl-pci-devices"
    ),
}


def absent(check: str, virtual: str | None) -> Finding | None:
    """Return the SKIP of a check whose subject does not exist in this kind of virtual machine."""
    code = ABSENT.get(check) if virtual == WSL else None
    return Subject(check=check).skips(code) if code else None
