"""What `gpucheck image` reads, as values: a whole CUDA image on a P100 host, to be broken by one field at a time."""

from msgspec.structs import replace

from gpucheck.checks.software._wheels import Wheel
from gpucheck.images.probe import ImageManifest, Values
from gpucheck.images.selfreport import Library, SelfReport
from gpucheck.model import DriverState, Limits, NvmlFailure, PciDevice
from tests import fakes
from tests.machines import LOADED, p100, reading

GIB = 2**30
MANIFEST = ImageManifest(
    variant="torch-cu126",
    framework="torch",
    version="2.14.1",
    build="cu126",
    python="3.12",
    base="ubuntu:24.04@sha256:0",
    built_for="12.6",
    cuda="12.6",
    cudnn="9.10.2.21",
    nccl="2.29.3",
    driver_floor="525.60.13",
    code=("sm_50", "sm_60", "sm_70"),
)
OWN = SelfReport(
    device="open",
    driver="loaded",
    libraries={
        "cuda": Library(paths=("/v/nvidia/cuda_runtime/lib/libcudart.so.12",), version="12.6"),
        "cudnn": Library(paths=("/v/nvidia/cudnn/lib/libcudnn.so.9",), version="9.10.2"),
        "nccl": Library(paths=("/v/nvidia/nccl/lib/libnccl.so.2",), version="2.29.3"),
    },
)
P100_ON_BUS = tuple(
    PciDevice(bus_id=p100(n).pci_bus_id, vendor_id="10de", device_id="15f8", class_id="030200") for n in (0, 1)
)


def on(values, own=None, manifest=None, **facts):
    """The same values with these facts of the host, and these values of the self-report and the manifest."""
    values = replace(values, facts=replace(values.facts, **facts), own=replace(values.own, **(own or {})))
    return replace(values, manifest=replace(values.manifest, **manifest)) if manifest else values


ON_P100 = Values(
    manifest=MANIFEST,
    wheels=(Wheel(name="torch", version="2.14.1+cu126"),),
    own=OWN,
    facts=fakes.facts(
        system=replace(fakes.SYSTEM, container="docker"),
        nvml=reading(p100(0), p100(1)),
        driver=LOADED,
        pci=P100_ON_BUS,
        environment={"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"},
        limits=Limits(shm_bytes=8 * GIB),
        folders={"/dev": ("nvidiactl", "nvidia0", "nvidia1", "nvidia-uvm")},
    ),
)
NO_LIBCUDA = "libcuda.so.1: cannot open shared object file: No such file or directory"
NO_LIBRARY = NvmlFailure(call="nvmlInit", code=12, name="NVMLError_LibraryNotFound")
# The image as `docker run` without --gpus starts it on the same host.
WITHOUT_GPUS = on(ON_P100, {"device": None, "driver": NO_LIBCUDA}, nvml=NO_LIBRARY, limits=Limits(shm_bytes=64 << 20))
ON_A_LAPTOP = on(WITHOUT_GPUS, driver=DriverState(), pci=())
CPU = ImageManifest(variant="torch-cpu", framework="torch", version="2.13.0", build="cpu", python="3.12", base="b")
CPU_IMAGE = replace(ON_A_LAPTOP, manifest=CPU, wheels=(Wheel(name="torch", version="2.13.0+cpu"),), own=SelfReport())
