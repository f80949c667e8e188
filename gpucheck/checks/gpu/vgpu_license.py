"""vGPU license: does a virtual GPU have the license without which the driver slows it down?

Sources: nvmlDeviceGetVirtualizationMode, nvmlDeviceGetGridLicensableFeatures. Without a license the driver lowers the
clocks of a virtual GPU some time after boot, at first after 20 minutes (NVIDIA vGPU licensing guide).
"""

from gpucheck.checks._nvml import about, of_each_gpu
from gpucheck.model import Check, Finding, Gpu
from gpucheck.model.facts import Facts

NAME = "vgpu-license"


@of_each_gpu(NAME, nothing="gpu.no-licensed-vgpu")
def evaluate(_: Facts, gpu: Gpu) -> Finding | None:
    subject = about(NAME, gpu)
    if gpu.health.licensed is None:
        return None
    if gpu.health.licensed:
        return subject.passes("licensed")
    return subject.warns("gpu.vgpu-unlicensed", "not licensed", "licensed")


CHECK = Check(NAME, frozenset({"software", "quick"}), evaluate=evaluate, needs=("nvml",))
