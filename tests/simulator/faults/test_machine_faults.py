"""Each fault of the machine changes exactly what it says it changes, and nothing else."""

import json
import os
import re
import shutil

import pytest

from gpucheck.simulator.machine import UPTIME_S
from gpucheck.simulator.xids import texts, xid_line
from tests.simulator.helpers import write

# What a fault changes, by the names that ``written`` gives: a path of the tree, FILE:KEY, or "log", the kernel log.
DRIVER_GONE = {
    "dev/nvidia-caps/nvidia-cap1", "dev/nvidia-modeset", "dev/nvidia-uvm", "dev/nvidia-uvm-tools", "dev/nvidia0",
    "dev/nvidia1", "dev/nvidiactl", "log", "proc/driver/nvidia/gpus/0000:04:00.0/information",
    "proc/driver/nvidia/gpus/0000:05:00.0/information", "proc/driver/nvidia/params", "proc/driver/nvidia/version",
    "proc/modules", "sys/module/nvidia/refcnt", "sys/module/nvidia/version", "sys/module/nvidia_drm/refcnt",
    "sys/module/nvidia_drm/version", "sys/module/nvidia_modeset/refcnt", "sys/module/nvidia_modeset/version",
    "sys/module/nvidia_uvm/refcnt", "sys/module/nvidia_uvm/version",
}  # fmt: skip
UNBOUND = {
    f"{place}/{name}"
    for gpu, slot in (("0000:04:00.0", "0000:03:08.0"), ("0000:05:00.0", "0000:03:10.0"))
    for place, name in (
        (f"sys/devices/pci0000:00/0000:00:02.0/0000:02:00.0/{slot}/{gpu}", "driver"),
        ("sys/bus/pci/drivers/nvidia", gpu),
    )
}
SECURE = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
KERNEL = "6.8.0-87-generic"
NEXT = "6.8.0-88-generic"
ABOVE = "sys/devices/pci0000:00/0000:00:02.0"
GPU0 = f"{ABOVE}/0000:02:00.0/0000:03:08.0/0000:04:00.0"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Everything that a machine directory says, by name; the machine is written as ``activate`` does it."""

    def written(name, *faults):
        folder = write(tmp_path_factory.mktemp("machine"), name, faults=faults, kernel=KERNEL, software=True)
        made = dict(tree(folder / "root"))
        made["log"] = made.pop("dev/kmsg")
        for line in (folder / "machine.txt").read_text().splitlines()[1:]:
            key, _, value = line.partition(" = ")
            made[f"nvml:{key}"] = value
        for file in ("surroundings", "software"):
            made |= {f"{file}:{key}": value for key, value in json.loads((folder / f"{file}.json").read_text()).items()}
        shutil.rmtree(folder)
        return made

    return written


def tree(root):
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(folder, name)  # noqa: PTH118 - thousands of files
            if os.path.islink(path):  # noqa: PTH114
                yield os.path.relpath(path, root), f"-> {os.readlink(path)}"  # noqa: PTH115
            elif name in files:
                with open(path, "rb") as file:  # noqa: PTH123
                    content = file.read()
                yield os.path.relpath(path, root), content if name == "config" else content.decode(errors="replace")


@pytest.fixture(scope="module")
def healthy(written):
    made = {}

    def healthy(name):
        if name not in made:
            made[name] = written(name)
        return made[name]

    return healthy


@pytest.fixture
def changed(written, healthy):
    def changed(name, *faults):
        before, after = healthy(name), written(name, *faults)
        return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}, after

    return changed


@pytest.mark.parametrize(
    ("profile", "fault", "names"),
    [
        ("p100-pcie-x2", "driver-not-loaded", DRIVER_GONE | UNBOUND),
        (
            "p100-pcie-x2",
            "module-flavour",
            DRIVER_GONE | UNBOUND | {f"lib/modules/{kernel}/updates/dkms/nvidia.ko" for kernel in (KERNEL, NEXT)},
        ),
        ("p100-pcie-x2", "module-rejected", DRIVER_GONE | UNBOUND | {SECURE}),
        ("p100-pcie-x2", "secure-boot", {SECURE, "log"}),
        ("p100-pcie-x2", "dkms-not-built", {
            f"lib/modules/{NEXT}/updates/dkms/nvidia.ko",
            f"var/lib/dkms/nvidia/580.178.04/{NEXT}/x86_64/module/nvidia.ko",
            f"var/lib/dkms/nvidia/kernel-{NEXT}-x86_64",
        }),
        ("p100-pcie-x2", "headers-missing", {
            f"lib/modules/{KERNEL}/build", f"usr/src/linux-headers-{KERNEL}/Makefile",
        }),
        ("p100-pcie-x2", "node-missing", {"dev/nvidia-uvm"}),
        ("p100-pcie-x2", "shm-small:mib=64", {"surroundings:shm_bytes", "surroundings:shm_free_bytes"}),
        ("p100-pcie-x2", "memlock-small", {"surroundings:memlock_bytes"}),
        ("p100-pcie-x2", "nccl-env", {"surroundings:environment"}),
        ("p100-pcie-x2", "library-mismatch", {"surroundings:libraries"}),
        ("p100-pcie-x2", "two-libraries", {"surroundings:libraries"}),
        ("p100-pcie-x2", "arch-missing", {"surroundings:code_runs", "surroundings:python"}),
        ("p100-pcie-x2", "xid:gpu=1,code=31", {"log"}),
        ("hgx-h100-x8", "sxid:code=20034", {"log"}),
        ("hgx-h100-x8", "iommu-faults:gpu=0", {"log"}),
        ("p100-pcie-x2", "uplink-gen:gpu=1,gen=2", {
            "log",
            *(f"{ABOVE}/{file}" for file in ("config", "current_link_speed")),
            *(f"{ABOVE}/0000:02:00.0/{file}" for file in ("config", "current_link_speed")),
        }),
        ("p100-pcie-x2", "aer-rising:gpu=0", {
            "log",
            *(f"{ABOVE}/0000:02:00.0/0000:03:08.0/{file}" for file in ("config", "aer_dev_correctable")),
        }),
        ("p100-pcie-x2", "acs-redirect:bus_id=0000:02:00.0", {
            f"{ABOVE}/0000:02:00.0/{port}/config" for port in ("0000:03:08.0", "0000:03:10.0")
        }),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_fault_changes_its_files_and_no_other(changed, profile, fault, names):
    seen, _ = changed(profile, fault)

    assert seen == names


def test_gpu_that_did_not_start_keeps_its_entry_and_tells_no_uuid(changed):
    """The NVML side renumbers the others; the PCI side stays whole."""
    seen, after = changed("p100-pcie-x2", "gpu-missing:gpu=1")

    assert {name for name in seen if not name.startswith("nvml:")} == {
        "log",
        "proc/driver/nvidia/gpus/0000:05:00.0/information",
        "surroundings:open_errors",
    }
    assert "GPU-????????" in after["proc/driver/nvidia/gpus/0000:05:00.0/information"]
    assert "NVRM: GPU 0000:05:00.0: RmInitAdapter failed!" in after["log"]
    assert after["nvml:gpu.count"] == "1"


def test_lost_gpu_answers_ones_on_the_bus(changed):
    seen, after = changed("p100-pcie-x2", "gpu-lost:gpu=0")

    assert seen == {
        "log",
        "nvml:gpu.0.error",
        "surroundings:open_errors",
        *(f"{GPU0}/{f}" for f in ("config", "current_link_speed", "current_link_width")),
    }
    assert after[f"{GPU0}/config"] == b"\xff" * 4096
    assert after[f"{GPU0}/current_link_speed"] == "Unknown\n"
    assert ": 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus." in after["log"]


def test_nouveau_holds_the_functions_and_says_so(changed):
    seen, after = changed("p100-pcie-x2", "nouveau")

    assert "sys/module/nouveau/refcnt" in seen
    assert after[f"{GPU0}/driver"].endswith("/drivers/nouveau")
    assert "nouveau 0000:04:00.0:" in after["log"]
    assert "NVRM: loading" not in after["log"]


def test_stopped_fabric_manager_takes_the_paths_down(changed):
    """Hopper reports the fabric's state; on Ampere only the paths are gone. The links themselves stay up on both."""
    for profile in ("hgx-h100-x8", "hgx-a100-x8"):
        seen, after = changed(profile, "fabric-manager-stopped")

        assert after["software:services"]["nvidia-fabricmanager"] == "inactive"
        assert {re.sub(r"\d+", "N", name) for name in seen if name.startswith("nvml:")} <= {
            "nvml:gpu.N.fabric.state", "nvml:gpu.N.pNp.N.N", "nvml:gpu.N.pNp.N.N.no_fabric",
            "nvml:gpu.N.fabric.health_summary",
        }, profile  # fmt: skip
        assert after["nvml:gpu.0.p2p.1.2"] == "5"
        assert after["nvml:gpu.0.nvlink.0.active"] == "1"


def test_fabric_manager_of_another_version_has_failed(changed):
    _, after = changed("hgx-h100-x8", "fabric-manager-version:version=570.86.15")

    assert after["software:services"]["nvidia-fabricmanager"] == "failed"
    assert after["software:packages"]["nvidia-fabricmanager"] == "570.86.15-1"


def test_every_port_redirects_unless_one_is_named(changed):
    """Bits of the control register: source validation, request and completion redirect, upstream forwarding."""
    seen, after = changed("hgx-h100-x8", "acs-redirect")
    controls = {after[name][0x156:0x158] for name in seen}

    assert {name.rpartition("/")[2] for name in seen} == {"config"}
    assert len(seen) == 29  # 9 root ports, 20 downstream ports
    assert controls == {b"\x1d\0"}


def test_translating_iommu_shows_in_the_groups_and_on_the_command_line(changed):
    seen, after = changed("hgx-h100-x8", "iommu-translating")

    assert {re.sub(r"\d+", "N", name) for name in seen} == {"sys/kernel/iommu_groups/N/type", "proc/cmdline", "log"}
    assert after["sys/kernel/iommu_groups/0/type"] == "DMA-FQ\n"
    assert "iommu=pt" not in after["proc/cmdline"]


def test_machine_without_iommu_gets_one_that_translates(changed):
    _, after = changed("p100-pcie-x2", "iommu-translating:type=DMA")

    assert after["sys/kernel/iommu_groups/0/type"] == "DMA\n"
    assert after["proc/cmdline"].endswith("intel_iommu=on\n")
    assert "sys/class/iommu/dmar0" in after


def test_small_bar_shows_on_the_bus_and_in_nvml(changed):
    seen, after = changed("rtx4090-x2", "rebar-off:gpu=1")
    device = "sys/devices/pci0000:00/0000:00:01.2/0000:02:00.0"

    assert seen <= {
        f"{device}/resource",
        f"{device}/config",
        "nvml:gpu.1.bar1.total",
        "nvml:gpu.1.bar1.total.load",
        "log",
    }
    assert after["nvml:gpu.1.bar1.total"] == str(256 << 20)
    start, end, _ = after[f"{device}/resource"].splitlines()[1].split()
    assert int(end, 16) - int(start, 16) + 1 == 256 << 20


def test_governor_is_that_of_every_cpu(changed):
    seen, _ = changed("rtx4090-x2", "governor-powersave")

    assert seen == {f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor" for cpu in range(32)}


def test_no_fault_touches_the_environment_of_this_process(written):
    before = dict(os.environ)
    written("p100-pcie-x2", "nccl-env:name=NCCL_P2P_LEVEL,value=SYS", "nccl-env")

    assert dict(os.environ) == before


def test_variables_add_up(written):
    made = written("p100-pcie-x2", "nccl-env:name=NCCL_P2P_LEVEL,value=SYS", "nccl-env")

    assert made["surroundings:environment"] == {"NCCL_P2P_LEVEL": "SYS", "NCCL_P2P_DISABLE": "1"}


def test_age_and_count_place_the_lines_in_the_log(written):
    """The log is in order of time, the newest line last, as many seconds before now as it was said."""
    log = written("p100-pcie-x2", "xid:gpu=0,code=79,age=5", "xid:gpu=1,code=31,age=100,count=3")["log"].splitlines()
    heads = [line.partition(";")[0].split(",") for line in log]

    assert [sum("Xid" in line and f": {code}," in line for line in log) for code in (79, 31)] == [1, 3]
    assert "Xid (PCI:0000:04:00): 79," in log[-1]
    assert int(heads[-1][2]) == (UPTIME_S - 5) * 10**6
    assert [int(head[1]) for head in heads] == list(range(len(heads)))
    assert [int(head[2]) for head in heads] == sorted(int(head[2]) for head in heads)


@pytest.mark.parametrize("code", sorted(texts().xid))
def test_every_xid_has_a_line_in_the_drivers_form(code):
    line = xid_line("0000:19:00.0", code)

    assert re.fullmatch(rf"NVRM: Xid \(PCI:0000:19:00\): {code}, \S.*", line)
    assert "{" not in line


def test_the_xids_that_matter_are_there():
    """Every code whose meaning is known."""
    wanted = {13, 31, 32, 43, 45, 46, 48, 54, 62, 63, 64, 68, 69, 74, 78, 79, 80, 85, 92, 94, 95, 109, 110, 119, 120}
    wanted |= {*range(39, 42), *range(70, 73), *range(75, 78), 121, *range(126, 138), 140, 143, *range(144, 152)}
    wanted |= {*range(154, 166), 167, 168, 171, 172}
    assert wanted == set(texts().xid)
