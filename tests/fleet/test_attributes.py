"""What a run tells of a host so that a fleet can look for what sick hosts share."""

import msgspec

from gpucheck.model import PackageVersion, PciDevice, PcieLink
from gpucheck.run.report import attributes
from tests.fakes import facts
from tests.machines import LOADED, on_bus, p100, reading


def host(**more):
    gpu = p100(0)
    gpu = msgspec.structs.replace(gpu, health=msgspec.structs.replace(gpu.health, vbios="86.00.4D"))
    return facts(nvml=reading(gpu), pci=more.pop("pci", on_bus(gpu)), driver=LOADED, **more)


def test_firmware_and_board_are_told():
    files = {"/sys/class/dmi/id/bios_version": "2.1\n", "/sys/class/dmi/id/product_name": "R7525"}

    found = attributes(host(files=files))

    assert (found["bios"], found["board"], found["vbios"]) == (("2.1",), ("R7525",), ("86.00.4D",))


def test_what_is_not_told_is_left_out():
    assert "bios" not in attributes(host())


def test_the_ports_above_a_gpu_are_told_with_their_link():
    link = PcieLink(generation=2, width=16)
    port = PciDevice(bus_id="0000:20:01.1", vendor_id="1022", device_id="1453", class_id="060400", link=link)
    gpus = [msgspec.structs.replace(device, path=(port.bus_id,)) for device in on_bus(p100(0)) if device.is_nvidia_gpu]

    assert attributes(host(pci=(port, *gpus)))["uplink"] == ("0000:20:01.1 gen 2 x16",)


def test_held_driver_packages_are_told():
    from gpucheck.run.report import _names

    name = sorted(_names(host().nvml))[0]
    packages = (PackageVersion(name=name, version="1", held=True), PackageVersion(name="other", version="1", held=True))

    assert attributes(host(packages=packages))["hold"] == (f"{name} 1",)
