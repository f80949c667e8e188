"""PCIe errors: do the links of the GPUs and of the bridges above them repeat or lose packets?

Sources: aer_dev_{correctable,nonfatal,fatal} of every function on the path (Linux 4.19 and newer), NVML's replay
counter and error fields of the GPU. Link errors are often booked at the far end of the link. Counters are totals since
boot, so a few are normal and only their rate tells; uncorrected errors have no normal rate.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import no_gpu_on_the_bus
from gpucheck.checks._uptime import up_hours
from gpucheck.model import Check, Finding, Gpu, Host, NvmlReading, PciDevice
from gpucheck.model.about import About

NAME = "pcie-errors"
# Corrected errors an hour, above which a link is worth a look. The specification allows a bit error rate of 1e-12,
# which is one every few seconds on a busy Gen4 x16 link; well-wired links stay two orders below that.
PER_HOUR = 60.0
RETRAIN = "reseat the card or riser, clean the contacts, update firmware; one generation lower in the BIOS tells"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs by both witnesses, the bridges above them, and how long the machine is up."""

    gpus: tuple[Gpu, ...]
    pci: tuple[PciDevice, ...]
    up_hours: float | None


def probe(host: Host) -> Values:
    """Ask NVML, sysfs and the kernel's clock."""
    nvml = host.nvml()
    pci = host.pci()
    on_path = {bus_id for device in pci if device.is_nvidia_gpu for bus_id in (device.bus_id, *device.path)}
    return Values(
        gpus=nvml.gpus if isinstance(nvml, NvmlReading) else (),
        pci=tuple(device for device in pci if device.bus_id in on_path),
        up_hours=up_hours(host),
    )


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for each function with errors, else one for the host."""
    gpus = {gpu.pci_bus_id: gpu for gpu in values.gpus}
    looked = [device for device in values.pci if device.aer is not None or _told(gpus.get(device.bus_id))]
    about = About(check=NAME, evidence=(f"{len(looked)} functions on the paths of the GPUs keep count",))
    if not values.pci:
        yield no_gpu_on_the_bus(NAME)
        return
    if not looked:
        yield about.skips("neither the kernel nor NVML counts PCIe errors here (the firmware owns error reporting)")
        return
    found = [finding for device in looked if (finding := _judge(device, gpus.get(device.bus_id), values.up_hours))]
    yield from found
    if not found:
        yield about.passes("no uncorrected error, corrected ones within reason")


def _told(gpu: Gpu | None) -> bool:
    return gpu is not None and any(count is not None for count in msgspec.structs.astuple(gpu.health.pcie_errors))


def _judge(device: PciDevice, gpu: Gpu | None, up_hours: float | None) -> Finding | None:
    own = gpu.health.pcie_errors if gpu is not None else None
    aer = device.aer
    fatal = max(aer.fatal if aer else 0, own.fatal or 0 if own else 0)
    non_fatal = max(aer.non_fatal if aer else 0, own.non_fatal or 0 if own else 0)
    corrected = max(aer.correctable if aer else 0, own.correctable or 0 if own else 0)
    replays = own.replays or 0 if own else 0
    about = About(
        check=NAME,
        subject=f"{'gpu' if device.is_nvidia_gpu else 'link'}:{device.bus_id}",
        evidence=(
            f"{device.bus_id}: {corrected} corrected, {non_fatal} non-fatal, {fatal} fatal, {replays} replays",
            f"up for {up_hours:.1f} h" if up_hours is not None else "uptime unknown",
        ),
    )
    if fatal or non_fatal:
        why = "packets were lost on this link, and what was in flight with them"
        seen = f"{fatal} fatal, {non_fatal} non-fatal"
        return about.fails(seen, "0", why, RETRAIN, "pcie-errors", "likely")
    rate = max(corrected, replays) / max(up_hours or 1.0, 1.0)
    if rate > PER_HOUR:
        why = "the link repeats packets: it costs bandwidth now, and fails later"
        return about.warns(
            f"{rate:.0f} an hour", f"below {PER_HOUR:.0f} an hour", why, RETRAIN, "pcie-errors", "likely"
        )
    return None


CHECK = Check(NAME, frozenset({"hardware", "pcie", "quick"}), probe, evaluate)
