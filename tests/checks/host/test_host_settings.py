"""Checks of what surrounds the GPUs: limits, device files, environment, loader, kernels, containers."""

from dataclasses import replace

import msgspec
import pytest

from gpucheck.checks.host import cpu_governor, device_nodes, environment, locked_memory, shared_memory
from gpucheck.checks.software import container_runtime, loader, module_flavour, next_boot
from gpucheck.model import (
    DkmsModule,
    DriverState,
    InstalledKernel,
    Limits,
    LoaderLibrary,
    PackageVersion,
    PciDevice,
    Verdict,
)
from tests.checks.judging import judge
from tests.fakes import SYSTEM, FakeHost
from tests.machines import LOADED, on_bus, p100, reading, whole_host

FAIL, WARN, SKIP, PASS, UNKNOWN = Verdict.FAIL, Verdict.WARN, Verdict.SKIP, Verdict.PASS, Verdict.UNKNOWN
MIB = 1 << 20
NIC = PciDevice(
    bus_id="0000:0a:00.0", vendor_id="15b3", device_id="1021", class_id="020700", infiniband_names=("mlx5_0",)
)


@pytest.mark.parametrize(
    ("size", "free", "verdict"),
    [(64, 64, FAIL), (512, 512, WARN), (16384, 10, WARN), (16384, 16384, PASS), (None, None, UNKNOWN)],
)
def test_shared_memory_must_hold_a_job(size, free, verdict):
    """64 MiB is what a container gets when nobody asks."""
    limits = Limits(shm_bytes=size and size * MIB, shm_free_bytes=free and free * MIB)

    (finding,) = judge(shared_memory, FakeHost(limits_=limits))

    assert (finding.verdict, finding.cause) == (verdict, "shm-too-small" if verdict in (FAIL, WARN) else None)


def test_the_remedy_for_shared_memory_is_one_that_the_reader_can_carry_out():
    """Nobody remounts /dev/shm inside a container."""
    small = Limits(shm_bytes=64 * MIB, shm_free_bytes=64 * MIB)
    in_container = msgspec.structs.replace(SYSTEM, container="docker")

    assert "--shm-size" in judge(shared_memory, FakeHost(limits_=small, system_=in_container))[0].fix
    assert "remount" in judge(shared_memory, FakeHost(limits_=small))[0].fix


@pytest.mark.parametrize(
    ("limit", "pci", "verdict"),
    [
        (-1, (NIC,), PASS),
        (64 << 10, (NIC,), WARN),
        (64 << 10, on_bus(p100(0)), SKIP),
        (64 << 10, (), UNKNOWN),
        (None, (NIC,), UNKNOWN),
    ],
)
def test_locked_memory_matters_with_rdma_devices(limit, pci, verdict):
    """CUDA pins through its own driver. Without /sys the RDMA devices are not visible, which is not "none"."""
    (finding,) = judge(locked_memory, FakeHost(limits_=Limits(memlock_bytes=limit), pci_=pci))

    assert finding.verdict is verdict
    assert verdict is not WARN or finding.seen == "64 KiB"


@pytest.mark.parametrize(
    ("names", "container", "verdict"),
    [
        (("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"), None, PASS),
        (("nvidia0", "nvidia1", "nvidiactl"), None, WARN),
        (("nvidia0", "nvidia1", "nvidiactl"), "docker", FAIL),
        (("nvidia0", "nvidiactl", "nvidia-uvm"), None, FAIL),
        (None, None, UNKNOWN),
    ],
)
def test_device_files_are_what_cuda_needs(names, container, verdict):
    """A container without nvidia-uvm answers NVML and fails CUDA."""
    host = FakeHost(
        nvml_=reading(p100(0), p100(1)),
        folders={} if names is None else {"/dev": names},
        system_=msgspec.structs.replace(SYSTEM, container=container),
    )

    (finding,) = judge(device_nodes, host)

    assert (finding.verdict, finding.cause) == (verdict, "device-node-missing" if verdict in (FAIL, WARN) else None)


@pytest.mark.parametrize(
    ("variables", "files", "count"),
    [
        ({}, {}, 0),
        ({"NCCL_DEBUG": "INFO", "NCCL_P2P_DISABLE": "0"}, {}, 0),
        ({"NCCL_P2P_DISABLE": "1"}, {}, 1),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_ALGO": "Tree"}, {}, 2),
        ({}, {"/etc/nccl.conf": "# site\nNCCL_IB_DISABLE = 1\nNCCL_DEBUG=WARN\n"}, 1),
    ],
)
def test_leftover_variables_are_named_with_what_they_do(variables, files, count):
    """Harmless values are left alone; nccl.conf counts as much as the environment."""
    found = judge(environment, FakeHost(environment_=variables, files=files))
    complaints = [finding for finding in found if finding.verdict is WARN]

    assert len(complaints) == count
    assert all(f.cause == "leftover-environment" and f.why and f.fix for f in complaints)
    assert count or [f.verdict for f in found] == [PASS]


@pytest.mark.parametrize(
    ("chosen", "job", "hidden"),
    [
        ("0,1", {}, None),
        ("1, 0", {}, None),
        ("GPU-1,GPU-0", {}, None),
        ("0", {}, "see 1 of 2"),
        ("0", {"SLURM_JOB_ID": "77"}, None),
        ("1,9,0", {}, "see 1 of 2"),
        ("", {}, "see 0 of 2"),
        ("-1", {}, "see 0 of 2"),
        ("0,0", {}, "see 0 of 2"),
        ("MIG-4a1b", {}, None),
    ],
)
def test_a_leftover_choice_of_devices_is_told_by_what_it_hides(chosen, job, hidden):
    """As CUDA reads it: up to the first that is none, nothing at all if one is named twice; a job's share is meant."""
    host = replace(whole_host(p100(0), p100(1)), environment_={"CUDA_VISIBLE_DEVICES": chosen, **job})
    (finding,) = judge(environment, host)

    assert finding.verdict is (WARN if hidden else PASS)
    if hidden:
        assert hidden in finding.why
        assert (finding.cause, finding.seen) == ("leftover-environment", f"CUDA_VISIBLE_DEVICES={chosen}")


@pytest.mark.parametrize("chosen", ["0,1,2", "0", "2,1,0"])
def test_devices_are_numbered_as_cuda_numbers_them_when_nvml_lost_one(chosen):
    """NVML's indices are then 0, 2 and 3; CUDA's are 0, 1 and 2."""
    gpus = [msgspec.structs.replace(p100(n), index=index) for n, index in ((0, 0), (1, 2), (2, 3))]
    (finding,) = judge(environment, replace(whole_host(*gpus), environment_={"CUDA_VISIBLE_DEVICES": chosen}))

    assert finding.verdict is (PASS if len(chosen) == 5 else WARN)


def test_hidden_devices_are_unknown_without_nvml():
    """Which GPUs the variable hides cannot be known; the driver check reports why."""
    (finding,) = judge(environment, FakeHost(environment_={"CUDA_VISIBLE_DEVICES": "0"}))

    assert (finding.verdict, finding.because_of) == (UNKNOWN, "driver")


def test_device_files_without_nvml_or_without_gpus_are_not_judged():
    """How many are needed is not known."""
    folders = {"/dev": ("nvidiactl", "nvidia-uvm")}

    (failed,) = judge(device_nodes, FakeHost(folders=folders))
    (empty,) = judge(device_nodes, FakeHost(folders=folders, nvml_=reading()))

    assert (failed.verdict, failed.because_of) == (UNKNOWN, "driver")
    assert (empty.verdict, empty.because_of) == (UNKNOWN, "inventory")


@pytest.mark.parametrize(
    ("governor", "driver", "verdict"),
    [
        ("powersave", "acpi-cpufreq", WARN),
        ("powersave", "intel_pstate", PASS),
        ("performance", "acpi-cpufreq", PASS),
        ("powersave", None, UNKNOWN),
        ("performance", None, PASS),
        (None, None, SKIP),
    ],
)
def test_a_governor_that_pins_the_lowest_clock_is_named(governor, driver, verdict):
    """powersave of intel_pstate scales by itself."""
    files = {f"{cpu_governor.FOLDER}/scaling_governor": governor, f"{cpu_governor.FOLDER}/scaling_driver": driver}
    host = FakeHost(
        files={path: f"{text}\n" for path, text in files.items() if text},
        folders={"/sys/devices/system/cpu": ("cpu0", "online")},
    )

    (finding,) = judge(cpu_governor, host)

    assert finding.verdict is verdict


RUNNING = InstalledKernel(release="5.15.0-97", running=True, headers=True, nvidia="580.178.04")
ADDED = DkmsModule(name="nvidia", version="580.178.04", state="added")
NEXT = InstalledKernel(release="5.15.0-113", running=False, headers=False)


@pytest.mark.parametrize(
    ("kernels", "dkms", "verdict", "words"),
    [
        ((RUNNING,), (), PASS, ""),
        ((RUNNING, NEXT), (), WARN, "linux-headers-5.15.0-113"),
        ((RUNNING, msgspec.structs.replace(NEXT, headers=True)), (), WARN, "dkms autoinstall -k 5.15.0-113"),
        (
            (RUNNING,),
            (DkmsModule(name="nvidia", version="580.178.04", state="added"),),
            WARN,
            "linux-headers-5.15.0-97",
        ),
        ((RUNNING,), (DkmsModule(name="zfs", version="2.2", state="added"),), PASS, ""),
        ((), (), SKIP, ""),
    ],
)
def test_a_kernel_without_the_module_is_named_before_the_reboot(kernels, dkms, verdict, words):
    """Afterwards it is too late."""
    host = FakeHost(kernels_=kernels, dkms_=dkms, driver_=LOADED, secure_boot_=None)

    (finding,) = judge(next_boot, host)

    assert finding.verdict is verdict
    assert words in finding.fix


@pytest.mark.parametrize(
    ("secure_boot", "loaded", "verdict"), [(True, None, FAIL), (True, "580.178.04", PASS), (False, None, PASS)]
)
def test_secure_boot_with_a_module_that_does_not_load_is_a_fault(secure_boot, loaded, verdict):
    """No enrolled key signed it."""
    driver = DriverState(installed_version="580.178.04", loaded_version=loaded)

    found = judge(next_boot, FakeHost(kernels_=(RUNNING,), driver_=driver, secure_boot_=secure_boot))

    assert found[-1].verdict is verdict


def lib(soname, folder, source="ld.so.cache"):
    return LoaderLibrary(soname=soname, path=f"{folder}/{soname}", source=source)


@pytest.mark.parametrize(
    ("libraries", "python", "verdicts"),
    [
        ((), {}, [SKIP]),
        ((lib("libcudart.so.12", "/usr/local/cuda/lib64"),), {"torch": "2.13.0"}, [PASS]),
        ((lib("libcudart.so.12", "/usr/local/cuda-12.8/lib64"), lib("libcudart.so.12", "/opt/cuda/lib64")), {}, [WARN]),
        ((lib("libcudart.so.12", "/a"), lib("libcudart.so.13", "/b")), {}, [PASS]),
        ((lib("libnccl.so.2", "/opt/nccl", "LD_LIBRARY_PATH"),), {"torch": "2.13.0"}, [WARN]),
        ((lib("libnccl.so.2", "/opt/nccl", "LD_LIBRARY_PATH"),), {}, [PASS]),
    ],
)
def test_two_copies_of_a_library_are_named_and_so_is_one_that_overrules_a_wheel(libraries, python, verdicts):
    """Two majors are two libraries."""
    found = judge(loader, FakeHost(libraries_=libraries, python_=python))

    assert [finding.verdict for finding in found] == verdicts
    assert all(finding.cause == "library-mismatch" for finding in found if finding.verdict is WARN)


TOOLKIT = PackageVersion(name="nvidia-container-toolkit", version="1.18.1-1")
DOCKER = PackageVersion(name="docker-ce", version="28.2.2")


@pytest.mark.parametrize(
    ("packages", "daemon", "cdi", "verdict"),
    [
        ((), None, (), SKIP),
        ((DOCKER,), None, (), SKIP),
        ((TOOLKIT,), None, (), SKIP),
        ((DOCKER, TOOLKIT), None, (), WARN),
        ((DOCKER, TOOLKIT), '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}', (), PASS),
        ((DOCKER, TOOLKIT), "{}", ("nvidia.yaml",), PASS),
        ((DOCKER, TOOLKIT), "{", (), FAIL),
        ((DOCKER, TOOLKIT), "[]", (), WARN),
    ],
)
def test_an_engine_that_was_never_told_of_the_toolkit_is_named(packages, daemon, cdi, verdict):
    """And a configuration that Docker cannot read fails."""
    files = {} if daemon is None else {"/etc/docker/daemon.json": daemon}

    (finding,) = judge(container_runtime, FakeHost(packages_=packages, files=files, folders={"/etc/cdi": cdi}))

    assert finding.verdict is verdict


CONTAINERD = PackageVersion(name="containerd.io", version="2.1")
CONTAINERD_FILE = {"/etc/containerd/config.toml": '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]'}


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({"packages_": None}, UNKNOWN, "package database"),
        ({"system_": msgspec.structs.replace(SYSTEM, container="docker")}, SKIP, "docker container"),
        ({"packages_": (DOCKER, TOOLKIT), "folders": {"/etc/docker": ("daemon.json",)}}, UNKNOWN, "cannot be read"),
        ({"packages_": (CONTAINERD, TOOLKIT)}, WARN, "no engine"),
        ({"packages_": (CONTAINERD, TOOLKIT), "files": CONTAINERD_FILE}, PASS, ""),
        (
            {"packages_": (CONTAINERD, TOOLKIT), "folders": {"/etc/containerd/conf.d": ("99-nvidia.toml",)}},
            PASS,
            "",
        ),
        ({"packages_": (DOCKER, CONTAINERD, TOOLKIT), "files": CONTAINERD_FILE}, WARN, "no engine"),
    ],
)
def test_engines_that_cannot_be_looked_up_are_not_absent(changes, verdict, words):
    """The engines of a container's host, an unreadable file, and containerd without Docker."""
    (finding,) = judge(container_runtime, FakeHost(**changes))

    assert finding.verdict is verdict
    assert words in finding.why


def test_loader_cache_that_cannot_be_listed_is_unknown():
    (finding,) = judge(loader, FakeHost(libraries_=None))

    assert finding.verdict is UNKNOWN


def test_what_a_kernel_has_is_written_without_python():
    """No None, no True."""
    host = FakeHost(kernels_=(RUNNING, NEXT), driver_=LOADED, secure_boot_=None)

    (finding,) = judge(next_boot, host)

    assert finding.evidence == (
        "5.15.0-97 (running): nvidia module 580.178.04, headers installed",
        "5.15.0-113: nvidia module not found, headers missing",
        "Secure Boot: not reported",
    )


@pytest.mark.parametrize(
    ("driver", "verdict"),
    [
        (DriverState(loaded_version="550.163.01"), UNKNOWN),
        (DriverState(loaded_version="550.163.01", installed_version="580.95", installed_flavour="open"), UNKNOWN),
        (DriverState(loaded_version="580.95", installed_version="580.95", installed_flavour="proprietary"), PASS),
        (DriverState(installed_version="580.95", installed_flavour="proprietary"), PASS),
        (DriverState(), SKIP),
    ],
)
def test_the_flavour_of_another_file_is_not_that_of_the_loaded_module(driver, verdict):
    """A loaded module of unknown flavor is no module that is not loaded."""
    (finding,) = judge(module_flavour, FakeHost(pci_=on_bus(p100(0)), driver_=driver))

    assert finding.verdict is verdict


@pytest.mark.parametrize(
    ("device", "flavour", "verdict"),
    [("15f8", "proprietary", PASS), ("15f8", "open", FAIL), ("2901", "proprietary", FAIL), ("2330", "open", PASS)],
)
def test_the_flavour_must_serve_the_generation(device, flavour, verdict):
    """Pascal needs the proprietary modules, Blackwell the open ones."""
    gpus = tuple(msgspec.structs.replace(d, device_id=device) for d in on_bus(p100(0)))
    driver = msgspec.structs.replace(LOADED, loaded_flavour=flavour)

    (finding,) = judge(module_flavour, FakeHost(pci_=gpus, driver_=driver))

    assert (finding.verdict, finding.cause) == (verdict, "module-flavour-wrong" if verdict is FAIL else None)
