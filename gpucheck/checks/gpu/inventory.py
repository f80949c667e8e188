"""Inventory: does NVML show every NVIDIA GPU that the PCI bus shows, and does each of them answer?

Sources: nvmlDeviceGetCount, nvmlDeviceGetHandleByIndex, every NVML return code of the pass (15 = GPU is lost, 16 =
reset required), and the PCI class of every vendor 10de function in sysfs. NVML omits GPUs that failed to initialise.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import (
    FORBIDDEN,
    LOST,
    NOT_IN_LIBRARY,
    WITHOUT_A_GPU,
    evidence,
    lost_gaps,
    not_looked,
    reason,
)
from gpucheck.model import DEFECT, Check, Finding, Gpu, Host, NvmlFailure, NvmlGap, NvmlReading, PciDevice
from gpucheck.model.finding.about import About, Confidence

NAME = "inventory"
# Kernel drivers that hold a device for a virtual machine.
PASSED_THROUGH = ("vfio-pci", "pci-stub", "pciback", "nvgrace_gpu_vfio_pci", "nvidia_vgpu_vfio")
POWER_CABLE = 8
LOST_FIX = "dmesg | grep -e RmInitAdapter -e Xid; check power and seating of {}; reboot"
SHOWN = 5


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs by both sources, and the kind of container, which may have been given only some of them."""

    nvml: NvmlReading | NvmlFailure
    pci: tuple[PciDevice, ...]
    container: str | None


def probe(host: Host) -> Values:
    """Query NVML and sysfs."""
    gpus = tuple(device for device in host.pci() if device.is_nvidia_gpu)
    return Values(nvml=host.nvml(), pci=gpus, container=host.system().container)


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for the count, one more for each GPU that is lost or that only one source knows."""
    nvml = values.nvml
    if isinstance(nvml, NvmlFailure):
        yield not_looked(NAME, nvml)
        return
    gpus = {gpu.pci_bus_id: gpu for gpu in nvml.gpus}
    elsewhere = [device for device in values.pci if device.driver in PASSED_THROUGH]
    on_bus = {device.bus_id: device for device in values.pci if device not in elsewhere}
    missing = [on_bus[bus_id] for bus_id in sorted(on_bus.keys() - gpus.keys())]
    refused = [gap for gap in nvml.gaps if gap.subject.startswith("gpu index ")]
    bad = [*_lost(nvml), *_without_a_handle(refused, missing)]
    hidden = missing if values.container and not refused else []
    bad += [_missing(device, len(gpus), len(on_bus)) for device in missing[len(refused) :] if device not in hidden]
    unseen = sorted(gpus.keys() - {device.bus_id for device in values.pci})
    if not gpus and not on_bus and not refused:
        yield _nothing(elsewhere)
    elif unseen:
        yield _no_bus(unseen, gpus)
    elif not bad and not (hidden and not gpus):
        yield About(check=NAME).passes(_models(nvml.gpus))
    yield from bad
    if hidden:
        yield _hidden(hidden, len(gpus), values.container or "")
    if elsewhere and gpus:
        why = f"not applicable: {len(elsewhere)} GPUs are assigned to virtual machines by {elsewhere[0].driver}"
        yield About(check=NAME, evidence=tuple(_sysfs(device) for device in elsewhere)).skips(why)


def _models(gpus: tuple[Gpu, ...]) -> str:
    names = [gpu.name for gpu in gpus]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def _lost(nvml: NvmlReading) -> Iterator[Finding]:
    """GPUs that responded to their handle and then were lost. A failed pair alone does not show which of the two."""
    gone = [gap for gap in nvml.gaps if gap.code in LOST and not gap.subject.startswith("gpu index ")]
    accounted: set[str] = set()
    for gpu in nvml.gpus:
        gaps = list(lost_gaps(nvml, gpu))
        if gaps:
            accounted.add(gpu.pci_bus_id)
            state = "lost" if gaps[0].code == LOST[0] else "requires a reset"
            why = f"NVML reports that the GPU {'is lost' if state == 'lost' else state}: it does not respond."
            about = About(check=NAME, subject=f"gpu:{gpu.pci_bus_id}", evidence=_some(gaps))
            yield about.fails(f"GPU {state}", None, why, LOST_FIX.format(gpu.pci_bus_id), "gpu-lost")
    pairs = [g for g in gone if g.subject.startswith("pair:") and not any(bus_id in g.subject for bus_id in accounted)]
    if pairs:
        why = "NVML reports that a GPU of this pair is lost, while both respond to other calls."
        about = About(check=NAME, subject=pairs[0].subject, evidence=_some(pairs))
        yield about.fails("a GPU of the pair lost", None, why, LOST_FIX.format("both"), "gpu-lost", "likely")


def _without_a_handle(refused: list[NvmlGap], missing: list[PciDevice]) -> Iterator[Finding]:
    """GPUs that NVML counts and gives no handle for. NVML counts in the order of the bus: so the missing ones match."""
    for position, gap in enumerate(refused):
        device = missing[position] if len(missing) >= len(refused) else None
        index = gap.subject.removeprefix("gpu index ")
        found = _unopened(gap, device, "" if device else f"GPU at index {index} ")
        yield msgspec.structs.replace(found, gpu_index=int(index)) if device and index.isdecimal() else found


def _unopened(gap: NvmlGap, device: PciDevice | None, name: str) -> Finding:
    """Return the meaning of a failed handle call. name: of a GPU that the subject does not name."""
    lines = (evidence(gap), *((_sysfs(device),) if device else ()))
    about = About(check=NAME, subject=f"gpu:{device.bus_id}" if device else "host", evidence=lines)
    if gap.code in FORBIDDEN:
        fix = "run as root, or give this user or container access to /dev/nvidia*"
        return about.unknown(f"{name}state unknown: {reason(gap)}", fix)
    if gap.code in (NOT_IN_LIBRARY, DEFECT):
        fix = "report it with the output of gpucheck record: this gpucheck cannot read this NVML library"
        return about.unknown(f"{name}state unknown: {reason(gap)}", fix)
    if gap.code == POWER_CABLE:
        why = "NVML reports that the external power cables of this GPU are not attached properly."
        return about.fails(f"{name}power cable missing", None, why, "power off, check its power cables", "gpu-lost")
    why = f"NVML counts this GPU and cannot open it: {reason(gap)}."
    fix = LOST_FIX.format(device.bus_id if device else "the GPU that is missing in nvidia-smi -L")
    confidence: Confidence = "certain" if gap.code in LOST else "likely"
    return about.fails(f"{name}cannot be opened", None, why, fix, "gpu-lost", confidence)


def _missing(device: PciDevice, shown: int, present: int) -> Finding:
    about = About(check=NAME, subject=f"gpu:{device.bus_id}", evidence=(_sysfs(device),))
    why = "The driver could not initialize this GPU, or it fell off the bus."
    if device.driver not in (None, "nvidia"):
        why = f"The kernel driver {device.driver} is bound to this GPU in place of nvidia."
    fix = LOST_FIX.format(device.bus_id)
    return about.fails(f"GPU missing from NVML ({shown} listed)", f"{present}", why, fix, "gpu-lost", "likely")


def _hidden(missing: list[PciDevice], shown: int, container: str) -> Finding:
    about = About(check=NAME, evidence=tuple(_sysfs(device) for device in missing))
    total = shown + len(missing)
    if shown:
        return about.skips(f"not applicable: this {container} container has {shown} of the {total} GPUs of the host")
    why = f"This {container} container has none of the {total} GPUs on the PCI bus."
    fix = "start the container with --gpus all, or with the CDI device nvidia.com/gpu=all"
    return about.unknown(why, fix, "0 GPUs")


def _nothing(elsewhere: list[PciDevice]) -> Finding:
    about = About(check=NAME, evidence=tuple(_sysfs(device) for device in elsewhere))
    if elsewhere:
        why = f"All {len(elsewhere)} GPUs of this host are assigned to virtual machines by {elsewhere[0].driver}."
        return about.unknown(why, "run gpucheck inside the virtual machines", "0 GPUs")
    why = "Neither NVML nor the PCI bus shows an NVIDIA GPU."
    fix = f"check seating, power and BIOS, or pass a GPU through to this machine; {WITHOUT_A_GPU}"
    return about.unknown(why, fix, "0 GPUs")


def _no_bus(unseen: list[str], gpus: dict[str, Gpu]) -> Finding:
    lines = tuple(f"nvmlDeviceGetPciInfo: {bus_id} {gpus[bus_id].name}" for bus_id in unseen)
    seen = f"NVML shows {len(gpus)} GPUs, {len(unseen)} of them not visible in /sys"
    why = "This process cannot see the PCI devices of the GPUs (a container without /sys, usually)."
    fix = "run on the host, or mount /sys read-only into the container"
    return About(check=NAME, evidence=lines).unknown(why, fix, seen)


def _sysfs(device: PciDevice) -> str:
    return f"sysfs: {device.bus_id} 10de:{device.device_id} driver {device.driver or 'none'}"


def _some(gaps: list[NvmlGap]) -> tuple[str, ...]:
    lines = tuple(dict.fromkeys(f"{gap.call}: {gap.code} {gap.name}" for gap in gaps))
    return (*lines[:SHOWN], f"and {len(lines) - SHOWN} more calls") if len(lines) > SHOWN else lines


CHECK = Check(NAME, frozenset({"hardware", "quick"}), probe, evaluate)
