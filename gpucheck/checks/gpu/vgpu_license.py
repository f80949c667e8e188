"""vGPU license: does a virtual GPU have the license without which the driver slows it down?

Sources: nvmlDeviceGetVirtualizationMode, nvmlDeviceGetGridLicensableFeatures. Without a license the driver lowers the
clocks of a virtual GPU some time after boot, at first after 20 minutes (NVIDIA vGPU licensing guide).
"""

from gpucheck.checks._nvml import evaluate_each_gpu, query_nvml
from gpucheck.model import Check, Finding, Gpu, NvmlFailure, NvmlReading
from gpucheck.model.finding.about import About

NAME = "vgpu-license"
WHY = "Without a license the driver lowers the clocks of a virtual GPU 20 minutes after boot: computing becomes slow."
FIX = "systemctl status nvidia-gridd; journalctl -u nvidia-gridd; check ServerAddress or the token in /etc/nvidia"


@evaluate_each_gpu(NAME, nothing="no GPU of this host is a virtual GPU that needs a license")
def evaluate(_: NvmlReading | NvmlFailure, gpu: Gpu) -> Finding | None:
    about = About(check=NAME, subject=f"gpu:{gpu.pci_bus_id}")
    if gpu.health.licensed is None:
        return None
    if gpu.health.licensed:
        return about.passes("licensed")
    return about.warns("not licensed", "licensed", WHY, FIX, "vgpu-unlicensed")


CHECK = Check(NAME, frozenset({"software", "quick"}), query_nvml, evaluate)
