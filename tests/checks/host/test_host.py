"""CPU governor, device files, shared and locked memory: what was read of a host, and the codes."""

import pytest
from msgspec.structs import replace

from gpucheck.checks.host import access
from gpucheck.model import Limits, PciDevice
from tests.checks.judging import codes, judge
from tests.fakes import SYSTEM, facts
from tests.machines import on_bus, p100, reading

MIB = 1 << 20
NIC = PciDevice(
    bus_id="0000:0a:00.0", vendor_id="15b3", device_id="1021", class_id="020700", infiniband_names=("mlx5_0",)
)
DOCKER = replace(SYSTEM, container="docker")


def governed(governor, driver):
    files = {access.GOVERNOR: governor, access.SCALING_DRIVER: driver}
    files = {path: f"{text}\n" for path, text in files.items() if text}
    return facts(files=files, folders={access.CPUS: ("cpu0", "online")})


def nodes(*names, system=SYSTEM):
    return facts(nvml=reading(p100(0), p100(1)), folders={"/dev": names} if names else {}, system=system)


def shm(size, free, system=SYSTEM):
    return facts(limits=Limits(shm_bytes=size and size * MIB, shm_free_bytes=free and free * MIB), system=system)


def memlock(limit, *pci):
    return facts(limits=Limits(memlock_bytes=limit), pci=pci)


NODES: dict[str, tuple[str, ...]] = {"/dev": ("nvidiactl", "nvidia-uvm")}


@pytest.mark.parametrize(
    ("check", "host", "code"),
    [
        # powersave of intel_pstate scales by itself.
        ("cpu-governor", governed("powersave", "intel_pstate"), None),
        ("cpu-governor", governed("powersave", None), "host.cpu-driver-unreadable"),
        ("cpu-governor", governed("performance", None), None),
        ("cpu-governor", governed(None, None), "host.cpu-clock-fixed"),
        # A container without nvidia-uvm answers NVML and fails CUDA. Without GPUs it is not known how many are needed.
        ("device-nodes", nodes("nvidia0", "nvidia1", "nvidiactl", system=DOCKER), "host.device-files-not-passed"),
        ("device-nodes", nodes(), "host.device-files-unknown"),
        ("device-nodes", facts(folders=NODES), "nvml.not-available"),
        ("device-nodes", facts(nvml=reading(), folders=NODES), "nvml.no-gpus"),
        # 64 MiB is what a container gets by default; /dev/shm cannot be remounted inside of it.
        ("shared-memory", shm(64, 64, DOCKER), "host.shm-too-small-container"),
        ("shared-memory", shm(512, 512), "host.shm-for-two-ranks"),
        ("shared-memory", shm(16384, 10), "host.shm-almost-full"),
        ("shared-memory", shm(None, None), "host.shm-unreadable"),
        # CUDA pins through its own driver. Without /sys the RDMA devices are not visible, which is not "none".
        ("locked-memory", memlock(64 << 10, *on_bus(p100(0))), "host.memlock-not-needed"),
        ("locked-memory", memlock(64 << 10), "host.memlock-need-unknown"),
        ("locked-memory", memlock(None, NIC), "host.memlock-unreadable"),
    ],
)
def test_codes_of_a_host(check, host, code):
    assert codes(check, host) == [code]


def test_a_limit_below_a_mebibyte_is_printed_in_kibibytes():
    assert judge("locked-memory", memlock(64 << 10, NIC))[0].seen == "64 KiB"
