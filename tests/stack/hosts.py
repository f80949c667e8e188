"""Kinds of hosts for the golden plans and the lock tests: GPU sets by name, systems, and facts made from them."""

from gpucheck.stack import HostFacts
from gpucheck.stack.facts import GpuFacts, OsFacts

# name: (PCI device ids, NVSwitch devices, architecture)
GPU_SETS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "p100-pcie-x2": (("15f8",) * 2, 0, "x86_64"),
    "p100-sxm2-x4": (("15f9",) * 4, 0, "x86_64"),
    "v100-sxm2-x8": (("1db5",) * 8, 0, "x86_64"),
    "t4-x1": (("1eb8",), 0, "x86_64"),
    "a100-sxm4-x8": (("20b2",) * 8, 6, "x86_64"),
    "rtx3090-x2": (("2204",) * 2, 0, "x86_64"),
    "rtx4090-x2": (("2684",) * 2, 0, "x86_64"),
    "h100-pcie-x2": (("2331",) * 2, 0, "x86_64"),
    "h100-pcie-x2-arm64": (("2331",) * 2, 0, "aarch64"),
    "h100-sxm5-x8": (("2330",) * 8, 4, "x86_64"),
    "b200-x8": (("2901",) * 8, 0, "x86_64"),
    "gb200-x4": (("2941",) * 4, 0, "aarch64"),
    "gh200-x1": (("2342",), 0, "aarch64"),
    "mixed-v100-a100": (("1db5", "20b5"), 0, "x86_64"),
    "mixed-v100-b200": (("1db5", "2901"), 0, "x86_64"),
    "mixed-rtx3090-rtx5090": (("2204", "2b85"), 0, "x86_64"),
}

# name: (ID and VERSION_ID of os-release, kernel)
SYSTEMS: dict[str, tuple[str, str, str]] = {
    "ubuntu-20.04": ("ubuntu", "20.04", "5.4.0-216-generic"),
    "ubuntu-22.04": ("ubuntu", "22.04", "5.15.0-179-generic"),
    "ubuntu-24.04": ("ubuntu", "24.04", "6.8.0-106-generic"),
    "ubuntu-26.04": ("ubuntu", "26.04", "7.0.0-28-generic"),
    "debian-12": ("debian", "12", "6.1.0-38-amd64"),
    "debian-13": ("debian", "13", "6.12.57-amd64"),
    "rhel-8": ("rhel", "8.10", "4.18.0-553.el8_10.x86_64"),
    "centos-stream-8": ("centos", "8", "4.18.0-553.el8.x86_64"),
    "rocky-8": ("rocky", "8.10", "4.18.0-553.el8_10.x86_64"),
    "almalinux-8": ("almalinux", "8.10", "4.18.0-553.el8_10.x86_64"),
    "rhel-9": ("rhel", "9.8", "5.14.0-687.el9.x86_64"),
    "centos-stream-9": ("centos", "9", "5.14.0-754.el9.x86_64"),
    "almalinux-9": ("almalinux", "9.6", "5.14.0-570.el9_6.x86_64"),
    "rocky-9": ("rocky", "9.6", "5.14.0-570.el9_6.x86_64"),
    "oracle-9": ("ol", "9.6", "5.15.0-311.uek.x86_64"),
    "rhel-10": ("rhel", "10.1", "6.12.0-124.el10.x86_64"),
    "centos-stream-10": ("centos", "10", "6.12.0-170.el10.x86_64"),
    "rocky-10": ("rocky", "10.1", "6.12.0-124.el10.x86_64"),
    "almalinux-10": ("almalinux", "10.1", "6.12.0-124.el10.x86_64"),
    "centos-7": ("centos", "7", "3.10.0-1160.el7.x86_64"),
}


def host(system: str, gpus: str, name: str = "node01", **changes: object) -> HostFacts:
    """The facts of a bare host of this system with this GPU set."""
    devices, switches, arch = GPU_SETS[gpus]
    os_id, version, kernel = SYSTEMS[system]
    if arch == "aarch64":
        kernel = kernel.replace("x86_64", "aarch64").replace("amd64", "arm64")
    facts = {
        "schema_": "gpucheck.facts/1",
        "host": name,
        "os": OsFacts(id=os_id, version=version, name=f"{os_id} {version}"),
        "arch": arch,
        "kernel": kernel,
        "gpus": tuple(
            GpuFacts(bus_id=f"0000:{0x10 + index:02x}:00.0", device_id=device) for index, device in enumerate(devices)
        ),
        "nvswitches": switches,
    }
    return HostFacts(**{**facts, **changes})  # type: ignore[arg-type]
