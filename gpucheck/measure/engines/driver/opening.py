"""Errors while the driver engine opens: the code of each."""

from pathlib import Path

from gpucheck.host.nvml.supervisor import query_child
from gpucheck.knowledge.codes import Subject
from gpucheck.measure.engines.driver.calls import CudaError, MissingCall
from gpucheck.measure.engines.protocol import NotOpened
from gpucheck.model import NvmlReading
from gpucheck.model.device import Device

COPIES = Subject(check="p2p-copies")
UVM, WSL = Path("/dev/nvidia-uvm"), Path("/dev/dxg")
NOT_READY = 802
NVML_S = 20.0
# By CUresult: what it means during context creation.
REASONS = {
    2: "measure.cuda-no-memory",
    3: "measure.cuda-shutting-down",
    36: "measure.cuda-stub-library",
    46: "measure.cuda-gpu-exclusive",
    100: "measure.cuda-no-device",
    209: "measure.cuda-no-kernel",
    218: "measure.cuda-kernels-rejected",
    221: "measure.cuda-no-compiler",
    222: "measure.cuda-driver-old",
    223: "measure.cuda-compiler-disabled",
    NOT_READY: "measure.cuda-fabric-not-ready",
    803: "measure.cuda-library-mismatch",
    804: "measure.cuda-compat-unsupported",
    805: "measure.mps-not-reached",
    806: "measure.mps-server-failed",
    807: "measure.mps-not-ready",
    808: "measure.mps-full",
    809: "measure.mps-full",
}
OTHER, UVM_MISSING = "measure.cuda-not-started", "measure.uvm-missing"
CONFIDENTIAL = "measure.gpus-not-attested"


def not_opened(error: CudaError, where: str, uvm: Path = UVM) -> NotOpened:
    """Return the exception to raise. where: the device, as in ``GPU 0 (0000:1b:00.0)``; empty for CUDA itself."""
    code = REASONS.get(error.code, OTHER)
    # Without the device node cuInit ends with 999 (unknown error), 100 or 304, by driver version.
    if error.call == "cuInit" and error.code in (100, 304, 999) and not uvm.exists() and not WSL.exists():
        code = UVM_MISSING
    if error.code == NOT_READY and _awaits_attestation():
        code = CONFIDENTIAL
    return NotOpened(COPIES.unknown(code, error=str(error)), where)


def _awaits_attestation() -> bool:
    """Ask NVML, in a child process, because a driver that is not ready may not answer."""
    reading = query_child(NVML_S, health=False)
    state = reading.confidential if isinstance(reading, NvmlReading) else None
    return state is not None and state.enabled and state.ready is False


def missing(error: MissingCall, driver: str | None, bindings: str | None) -> NotOpened:
    """Return the exception to raise for a driver without a function that is needed. driver: its CUDA version."""
    if error.call == "cuInit":
        return NotOpened(COPIES.unknown("measure.libcuda-missing"))
    return NotOpened(
        COPIES.unknown("measure.driver-call-missing", call=error.call, driver_cuda=driver, bindings=bindings)
    )


def hidden(device: Device) -> NotOpened:
    """Return the exception to raise for a GPU that NVML lists and CUDA does not show to this process."""
    return NotOpened(COPIES.unknown("measure.gpu-hidden", hidden=device.index, bus_id=device.bus_id))
