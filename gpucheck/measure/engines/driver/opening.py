"""Errors while the driver engine opens: their meaning and their fix."""

from pathlib import Path

from gpucheck.host.nvml.supervisor import query_child
from gpucheck.measure.engines.driver.calls import CudaError, MissingCall
from gpucheck.measure.engines.protocol import NotOpened
from gpucheck.measure.values import Device
from gpucheck.model import NvmlReading

UVM, WSL = Path("/dev/nvidia-uvm"), Path("/dev/dxg")
COMPUTE_MODE = "nvidia-smi -q -d COMPUTE shows the mode; sudo nvidia-smi -c DEFAULT lets several processes use the GPU"
MPS = (
    "MPS control daemon: echo get_server_list | nvidia-cuda-mps-control; without MPS: unset CUDA_MPS_PIPE_DIRECTORY, "
    "or echo quit | nvidia-cuda-mps-control"
)
FABRIC = (
    "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A 3 Fabric; in a virtual machine the provider starts "
    "the fabric manager on its host"
)
NOT_READY = 802
CONFIDENTIAL = (
    "confidential computing is on and the GPUs are not set to ready",
    "attest the GPUs, then: sudo nvidia-smi conf-compute -srs 1; gpucheck verify --only confidential-computing",
)
NVML_S = 20.0
# By CUresult: its meaning during context creation, and the fix.
REASONS = {
    2: ("a GPU or the host has too little free memory", "nvidia-smi and free -h show what uses the memory; end it"),
    3: ("the driver is shutting down", "gpucheck verify --only driver"),
    36: ("libcuda.so.1 is a stub of the CUDA toolkit", "remove the toolkit's directory stubs from LD_LIBRARY_PATH"),
    46: ("the compute mode of the GPU is exclusive and another process uses it, or prohibited", COMPUTE_MODE),
    100: ("the driver shows this process no GPU", "unset CUDA_VISIBLE_DEVICES; in a container pass the GPUs to it"),
    209: ("the driver compiled no kernel for this GPU", "install a driver that supports this GPU"),
    218: ("the driver rejected the kernels of gpucheck", "gpucheck verify --only driver"),
    221: (
        "libnvidia-ptxjitcompiler.so.1 is missing",
        "install all packages of the driver; in a container: capability compute",
    ),
    222: ("the driver is older than the kernels of gpucheck", "install driver 525 or later"),
    223: (
        "compiling kernels is disabled for this process, and gpucheck has its kernels as PTX",
        "remove CUDA_DISABLE_PTX_JIT and CUDA_DISABLE_JIT from the configuration of the container or of MPS",
    ),
    NOT_READY: ("NVSwitch or NVLink is not initialized yet", FABRIC),
    803: ("libcuda.so.1 and the loaded kernel module have different versions", "reboot, or reload the nvidia modules"),
    804: ("the forward compatibility package does not support this GPU", "remove cuda-compat from LD_LIBRARY_PATH"),
    805: ("the MPS control daemon cannot be reached", MPS),
    806: ("the MPS server failed", MPS),
    807: ("the MPS server is not ready", MPS),
    808: ("MPS accepts no further client", MPS),
    809: ("MPS accepts no further connection", MPS),
}
UVM_MISSING = (
    f"{UVM} does not exist, so CUDA cannot start",
    "sudo modprobe nvidia-uvm; sudo nvidia-modprobe -u -c 0; in a container pass /dev/nvidia-uvm to it",
)
OTHER = ("the driver did not start CUDA", "gpucheck verify --only driver; dmesg | grep -e NVRM -e Xid")


def not_opened(error: CudaError, where: str, uvm: Path = UVM) -> NotOpened:
    """Return the exception to raise. where: the device, as in ``GPU 0 (0000:1b:00.0)``; empty for CUDA itself."""
    why, fix = REASONS.get(error.code, OTHER)
    # Without the device node cuInit ends with 999 (unknown error), 100 or 304, by driver version.
    if error.call == "cuInit" and error.code in (100, 304, 999) and not uvm.exists() and not WSL.exists():
        why, fix = UVM_MISSING
    if error.code == NOT_READY and _awaits_attestation():
        why, fix = CONFIDENTIAL
    return NotOpened(f"{where + ': ' if where else ''}{why} ({error})", fix)


def _awaits_attestation() -> bool:
    """Ask NVML, in a child process, because a driver that is not ready may not answer."""
    reading = query_child(NVML_S, health=False)
    state = reading.confidential if isinstance(reading, NvmlReading) else None
    return state is not None and state.enabled and state.ready is False


def missing(error: MissingCall, driver: str | None, bindings: str | None) -> NotOpened:
    """Return the exception to raise for a driver without a function that is needed. driver: its CUDA version."""
    if error.call == "cuInit":
        return NotOpened(
            "the CUDA driver library libcuda.so.1 was not found",
            "install the driver's compute packages (libnvidia-compute, nvidia-driver-cuda-libs); in a container: "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
    return NotOpened(
        f"the driver (CUDA {driver or 'unknown'}) has no {error.call}, which cuda-bindings {bindings or ''} needs",
        "install driver 525 or later",
    )


def hidden(device: Device) -> NotOpened:
    """Return the exception to raise for a GPU that NVML lists and CUDA does not show to this process."""
    return NotOpened(
        f"GPU {device.index} ({device.bus_id}) is listed by NVML, but CUDA does not show it to this process",
        "unset CUDA_VISIBLE_DEVICES, or omit the GPU with --devices",
    )
