"""PCI functions of vendor NVIDIA from sysfs, each with its chain of bridges and its link."""

import re
from pathlib import Path

from gpucheck.model import PciDevice, PcieLink

NVIDIA = "10de"
ROOT = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
BUS_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
GENERATION = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}  # by GT/s
# A link that is down reads as 0 or, with the register all ones, as 63 lanes.
NO_WIDTH = (0, 63, 255)


def read_pci(root: Path) -> tuple[PciDevice, ...]:
    """Every NVIDIA function below ``root``/sys, ordered by bus id; none where there is no such folder."""
    devices = root / "sys/bus/pci/devices"
    if not devices.is_dir():
        return ()
    return tuple(_device(path) for path in sorted(devices.iterdir()) if hex_id(text(path / "vendor")) == NVIDIA)


def text(path: Path) -> str | None:
    """A small file's content without the space around it, None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def hex_id(value: str | None) -> str:
    """``0x10de`` as ``10de``; empty where there is none."""
    return (value or "").removeprefix("0x").lower()


def _device(path: Path) -> PciDevice:
    real = path.resolve()
    names = [part for part in real.parts if BUS_ID.fullmatch(part)]
    roots = [part.removeprefix("pci") for part in real.parts if ROOT.fullmatch(part)]
    driver = path / "driver"
    return PciDevice(
        bus_id=path.name,
        vendor_id=NVIDIA,
        device_id=hex_id(text(path / "device")),
        class_id=hex_id(text(path / "class")),
        numa_node=_numa_node(text(path / "numa_node")),
        path=tuple(names[:-1]),
        root=roots[-1] if roots else "",
        link=_link(real, real.parent if len(names) > 1 else None),
        driver=driver.readlink().name if driver.is_symlink() else None,
    )


def _link(device: Path, slot: Path | None) -> PcieLink:
    """max_* is what both ends can do: a narrow slot is no fault of the card. No visible slot: the device's own."""
    own_generation, own_width = _generation(device, "max"), _width(device, "max")
    slot_generation = _generation(slot, "max") if slot else None
    slot_width = _width(slot, "max") if slot else None
    return PcieLink(
        generation=_generation(device, "current"),
        width=_width(device, "current"),
        max_generation=_smaller(own_generation, slot_generation),
        max_width=_smaller(own_width, slot_width),
        device_max_generation=own_generation,
    )


def _smaller(a: int | None, b: int | None) -> int | None:
    return min((value for value in (a, b) if value is not None), default=None)


def _generation(device: Path, which: str) -> int | None:
    """From ``16.0 GT/s PCIe`` (``8 GT/s`` in older kernels); None for ``Unknown``."""
    number = re.match(r"\d+(\.\d+)?", text(device / f"{which}_link_speed") or "")
    return GENERATION.get(float(number[0])) if number else None


def _width(device: Path, which: str) -> int | None:
    words = text(device / f"{which}_link_width") or ""
    return int(words) if words.isdigit() and int(words) not in NO_WIDTH else None


def _numa_node(words: str | None) -> int | None:
    """sysfs says -1 where the firmware did not tell."""
    return int(words) if words is not None and words.isdigit() else None
