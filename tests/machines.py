"""Hand-made readings: a healthy machine of each kind, to be broken by one field at a time."""

from gpucheck.model import (
    DriverState,
    EccCounts,
    Fabric,
    Gpu,
    Health,
    NvLink,
    NvmlReading,
    PciDevice,
    PcieErrors,
    PcieLink,
    RetiredPages,
    RowRemap,
)
from gpucheck.model.facts import Facts
from tests.fakes import facts

DRIVER = "580.178.04"
GEN3_X16 = PcieLink(generation=3, width=16, max_generation=3, max_width=16, device_max_generation=3)
GEN5_X16 = PcieLink(generation=5, width=16, max_generation=5, max_width=16, device_max_generation=5)
HEALTHY = Health(
    persistence=True,
    compute_mode="default",
    mig=False,
    mig_pending=False,
    ecc=True,
    ecc_pending=True,
    ecc_counts=EccCounts(volatile_corrected=3, volatile_uncorrected=0, aggregate_corrected=7, aggregate_uncorrected=0),
    row_remap=RowRemap(corrected=0, uncorrected=0, pending=False, failed=False),
    retired_pages=RetiredPages(single_bit=0, double_bit=0, pending=False),
    pcie_errors=PcieErrors(replays=2, correctable=1, non_fatal=0, fatal=0),
    recovery_action="none",
    clocks_event_reasons=("idle",),
    temperature_c=35,
    temperature_slowdown_c=90,
    temperature_margin_c=55,
    power_limit_w=700.0,
    power_default_w=700.0,
    power_min_w=200.0,
    power_max_w=700.0,
    application_clock_mhz=1980,
    default_application_clock_mhz=1980,
    processes=(),
)
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
        memory_bytes=16 << 30,
        bar1_bytes=16 << 30,
        pcie=GEN3_X16,
        health=HEALTHY,
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
        memory_bytes=80 << 30,
        bar1_bytes=128 << 30,
        pcie=GEN5_X16,
        health=HEALTHY,
        nvlinks=links,
        fabric=Fabric(state="completed", status=0),
    )


def reading(*gpus: Gpu, ancestor: str = "PIX") -> NvmlReading:
    ancestors = tuple(tuple("X" if a == b else ancestor for b in range(len(gpus))) for a in range(len(gpus)))
    granted = tuple(tuple("OK" for _ in gpus) for _ in gpus)
    return NvmlReading(
        driver_version=DRIVER,
        nvml_version="13.580.178",
        cuda_version="13.0",
        gpus=gpus,
        ancestors=ancestors,
        p2p={"read": granted, "write": granted, "nvlink": granted},
    )


def whole_host(*gpus: Gpu) -> Facts:
    """A healthy host with these GPUs, with everything around them as it should be."""
    nodes = tuple(f"nvidia{n}" for n in range(len(gpus)))
    return facts(
        nvml=reading(*gpus),
        pci=on_bus(*gpus),
        driver=LOADED,
        folders={
            "/dev": (*nodes, "nvidiactl", "nvidia-uvm"),
            "/sys/devices/system/cpu": ("cpu0", "online"),
            "/sys/devices/system/node": ("node0",),
        },
        files={"/sys/devices/system/node/node0/cpulist": "0-31\n", "/proc/uptime": "36000.00 1.0"},
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
