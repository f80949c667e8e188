"""Hand-made readings: a healthy machine of each kind, to be broken by one field at a time."""

from gpucheck.model import DriverState, Fabric, Gpu, NvLink, NvmlReading, PciDevice, PcieLink

DRIVER = "580.178.04"
GEN3_X16 = PcieLink(generation=3, width=16, max_generation=3, max_width=16, device_max_generation=3)
GEN5_X16 = PcieLink(generation=5, width=16, max_generation=5, max_width=16, device_max_generation=5)
LOADED = DriverState(
    loaded_version=DRIVER, loaded_flavour="proprietary", installed_version=DRIVER, installed_flavour="proprietary"
)


def p100(index: int) -> Gpu:
    return Gpu(
        index=index,
        name="Tesla P100-PCIE-16GB",
        uuid=f"GPU-{index}",
        pci_bus_id=f"0000:0{3 + index}:00.0",
        device_id="15f8",
        compute_capability="6.0",
        pcie=GEN3_X16,
    )


def h100(index: int) -> Gpu:
    links = tuple(
        NvLink(link=n, active=True, version=6, remote_kind="switch", remote_bus_id=f"0000:0{n % 4 + 5}:00.0")
        for n in range(18)
    )
    return Gpu(
        index=index,
        name="NVIDIA H100 80GB HBM3",
        uuid=f"GPU-{index}",
        pci_bus_id=f"0000:{index + 1}b:00.0",
        device_id="2330",
        compute_capability="9.0",
        pcie=GEN5_X16,
        nvlinks=links,
        fabric=Fabric(state="completed", status=0),
    )


def reading(*gpus: Gpu, ancestor: str = "PIX") -> NvmlReading:
    ancestors = tuple(tuple("X" if a == b else ancestor for b in range(len(gpus))) for a in range(len(gpus)))
    return NvmlReading(
        driver_version=DRIVER, nvml_version="13.580.178", cuda_version="13.0", gpus=gpus, ancestors=ancestors
    )


def on_bus(*gpus: Gpu) -> tuple[PciDevice, ...]:
    """The GPUs' PCI functions, two by two below one switch."""
    return tuple(
        PciDevice(
            bus_id=gpu.pci_bus_id,
            vendor_id="10de",
            device_id=gpu.device_id,
            class_id="030200",
            numa_node=0,
            root="pci0000:00",
            path=("0000:00:01.0", "0000:01:00.0", f"0000:02:0{gpu.index}.0"),
            link=gpu.pcie,
            driver="nvidia",
        )
        for gpu in gpus
    )


def nvswitches(count: int) -> tuple[PciDevice, ...]:
    return tuple(
        PciDevice(bus_id=f"0000:0{n + 5}:00.0", vendor_id="10de", device_id="22a3", class_id="068000")
        for n in range(count)
    )
