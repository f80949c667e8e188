"""What a host may have in common with others of its fleet: the columns in which a common cause is looked for."""

from collections.abc import Iterable

from gpucheck.knowledge.packages import packages
from gpucheck.model import Host, NotRecorded, NvmlReading, PciDevice

DMI = "/sys/class/dmi/id/"


def attributes(host: Host) -> dict[str, tuple[str, ...]]:
    """By name, sorted and without repeats; what the host does not report is omitted. Empty for an older recording.

    ``bios``, ``board``, ``module`` (kernel module flavour), ``vbios``, ``hold`` (held driver packages) and ``uplink``:
    every port above a GPU with its link, ``0000:20:01.1 gen 5 x16``.
    """
    try:
        return _attributes(host)
    except NotRecorded:
        return {}


def _attributes(host: Host) -> dict[str, tuple[str, ...]]:
    nvml = host.nvml()
    reading = nvml if isinstance(nvml, NvmlReading) else None
    found: dict[str, Iterable[str | None]] = {
        "bios": [host.read_text(DMI + "bios_version")],
        "board": [host.read_text(DMI + "product_name")],
        "module": [host.driver().loaded_flavour],
        "vbios": [gpu.health.vbios for gpu in reading.gpus] if reading else [],
        "hold": [f"{p.name} {p.version}" for p in host.packages(_names(reading)) or () if p.held],
        "uplink": _uplinks(host.pci()),
    }
    clean = {name: sorted({value.strip() for value in values if value}) for name, values in found.items()}
    return {name: tuple(values) for name, values in clean.items() if values}


def _names(reading: NvmlReading | None) -> set[str]:
    """Names that a driver package may have, for the driver that is loaded."""
    version = (reading.driver_version if reading else None) or ""
    branch = version.partition(".")[0]
    templates = {template for row in packages().drivers for template in row.packages}
    words = {template.partition("=")[0].partition(" ")[0] for template in templates}
    return {word.replace("{branch}", branch).replace("{version}", version) for word in words}


def _uplinks(devices: tuple[PciDevice, ...]) -> list[str]:
    """The link of an idle port may have slowed down to save power: only ports above GPUs; width is more reliable."""
    by_id = {device.bus_id: device for device in devices}
    ports = {bus_id for device in devices if device.is_nvidia_gpu for bus_id in device.path}
    links = ((bus_id, by_id[bus_id].link) for bus_id in ports if bus_id in by_id)
    return [f"{b} gen {link.generation} x{link.width}" for b, link in links if link.generation and link.width]
