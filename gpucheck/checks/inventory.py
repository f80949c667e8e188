"""Inventory: does NVML show every NVIDIA GPU that the PCI bus shows?

Sources: nvmlDeviceGetCount and the PCI class of every vendor 10de function in sysfs. NVML leaves out GPUs that failed
to initialise, so the bus is the yardstick.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import not_looked
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure, NvmlReading, PciDevice, Verdict

NAME = "inventory"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs by both witnesses."""

    nvml: NvmlReading | NvmlFailure
    pci: tuple[PciDevice, ...]


def probe(host: Host) -> Values:
    """Ask NVML and sysfs."""
    return Values(nvml=host.nvml(), pci=tuple(device for device in host.pci() if device.is_nvidia_gpu))


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for the count, one more for each GPU that only one witness knows."""
    if isinstance(values.nvml, NvmlFailure):
        yield not_looked(NAME, values.nvml)
        return
    gpus = {gpu.pci_bus_id: gpu for gpu in values.nvml.gpus}
    on_bus = {device.bus_id: device for device in values.pci}
    missing = sorted(on_bus.keys() - gpus.keys())
    unseen = sorted(gpus.keys() - on_bus.keys())
    if not gpus and not on_bus:
        yield _nothing()
    elif not missing and not unseen:
        yield Finding(
            check=NAME,
            verdict=Verdict.PASS,
            subject="host",
            seen=_models(values.nvml.gpus),
            wanted=f"{len(on_bus)} on the PCI bus",
        )
    for bus_id in missing:
        yield _missing(on_bus[bus_id], len(gpus), len(on_bus))
    if unseen:
        yield _no_bus(unseen, gpus)


def _models(gpus: tuple[Gpu, ...]) -> str:
    names = [gpu.name for gpu in gpus]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def _nothing() -> Finding:
    return Finding(
        check=NAME,
        verdict=Verdict.UNKNOWN,
        subject="host",
        seen="0 GPUs",
        wanted="1 or more",
        why="neither NVML nor the PCI bus shows an NVIDIA GPU",
        fix="check seating, power and BIOS, or pass a GPU through to this machine",
    )


def _missing(device: PciDevice, shown: int, present: int) -> Finding:
    return Finding(
        check=NAME,
        verdict=Verdict.FAIL,
        subject=f"gpu:{device.bus_id}",
        seen=f"{shown} GPUs in NVML",
        wanted=f"{present} GPUs, as on the PCI bus",
        cause="gpu-lost",
        confidence="likely",
        why="the driver could not initialise this GPU, or it fell off the bus",
        fix=f"dmesg | grep -e RmInitAdapter -e Xid; check power and seating of {device.bus_id}; reboot",
        evidence=(f"sysfs: {device.bus_id} 10de:{device.device_id} driver {device.driver}",),
    )


def _no_bus(unseen: list[str], gpus: dict[str, Gpu]) -> Finding:
    return Finding(
        check=NAME,
        verdict=Verdict.UNKNOWN,
        subject="host",
        seen=f"NVML shows {len(gpus)}, sysfs lacks {len(unseen)} of them",
        wanted="the same GPUs in both",
        why="this process cannot see the PCI devices of the GPUs (a container without /sys, usually)",
        fix="run on the host, or mount /sys read-only into the container",
        evidence=tuple(f"nvmlDeviceGetPciInfo: {bus_id} {gpus[bus_id].name}" for bus_id in unseen),
    )


CHECK = Check(NAME, frozenset({"hardware", "quick"}), probe, evaluate)
