"""PCI functions of a host: bus id, vendor and class. Every further file costs time on a large machine."""

import os
from typing import Iterator, NamedTuple

from .files import Path, folder_names, hex_id, text

NVIDIA = "10de"
DEVICES = "sys/bus/pci/devices"
GPU_CLASSES = ("0300", "0302")  # VGA and 3D controllers


class Function(NamedTuple):
    """A PCI function. folder: its entry in DEVICES. class_id: six lower-case hex digits, vendor four."""

    bus_id: str
    folder: str
    vendor: str
    class_id: str

    @property
    def is_nvidia_gpu(self) -> bool:
        """Whether it is an NVIDIA display or 3D controller."""
        return self.vendor == NVIDIA and self.class_id[:4] in GPU_CLASSES


def functions(root: Path) -> Iterator[Function]:
    """Yield the functions below root, ordered by bus id; none without such a directory.

    Without the virtual functions of a GPU: where vGPU uses SR-IOV it shows up to 32, which are for virtual machines.
    """
    listed = f"{root}/{DEVICES}"
    for bus_id in folder_names(listed) or ():
        folder = f"{listed}/{bus_id}"
        vendor, class_id = (hex_id(text(f"{folder}/{name}")) for name in ("vendor", "class"))
        if vendor != NVIDIA or not os.path.exists(f"{folder}/physfn"):
            yield Function(bus_id, folder, vendor, class_id)
