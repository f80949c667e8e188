"""Error counters that rose while the GPUs computed: NVML names the GPU and the kind, so these are certain."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.compute.evaluation.groups import about, gpus
from gpucheck.model import Finding
from gpucheck.model.compute import ComputeDevice

NAME = "compute-errors"


class _Kind(NamedTuple):
    cause: str
    fails: bool
    why: str
    fix: str


ECC = _Kind(
    "ecc-uncorrected", True, "memory errors that ECC could not correct", "reset the GPU; if they return, replace it"
)
PCIE = _Kind(
    "pcie-errors", False, "errors on the PCIe link during load", "reseat the card or riser; gpucheck bandwidth"
)
FATAL = _Kind("pcie-errors", True, "uncorrectable errors on the PCIe link during load", PCIE.fix)
NVLINK = _Kind("nvlink-errors", False, "errors on NVLinks during load", "reseat bridge or board; gpucheck bandwidth")
KINDS = {
    "ecc_uncorrected": ECC,
    "pcie_fatal": FATAL,
    "pcie_non_fatal": FATAL,
    "pcie_replays": PCIE,
    "pcie_correctable": PCIE,
    "nvlink_crc": NVLINK,
    "nvlink_replays": NVLINK,
    "nvlink_recoveries": NVLINK,
}


def counters(devices: Sequence[ComputeDevice]) -> Iterator[Finding]:
    """Yield one finding for each GPU and cause. Errors that ECC corrected are evidence of no fault by themselves."""
    for device in gpus(devices):
        found: dict[str, list[str]] = {}
        for name in KINDS:
            if device.errors.get(name):
                found.setdefault(KINDS[name].cause, []).append(name)
        for names in found.values():
            kind = KINDS[names[0]]
            made = about(NAME, device, *(f"{name} rose by {device.errors[name]}" for name in names))
            seen = ", ".join(f"{device.errors[name]} {name}" for name in names)
            yield (made.fails if kind.fails else made.warns)(seen, "no errors", kind.why, kind.fix, kind.cause)
