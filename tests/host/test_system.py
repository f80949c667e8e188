"""The operating system around the GPUs: os-release, and whether the machine is a real one."""

import json
import platform
import resource

import pytest

from gpucheck.host import LiveSource, Place
from gpucheck.host import system as of_host
from gpucheck.host.driver import read_dkms, read_kernels, read_secure_boot
from gpucheck.host.readers.system import os_release
from gpucheck.host.simulated import surroundings
from gpucheck.host.system import belongs, cache_entries, read_libraries, read_limits, read_system, steering
from gpucheck.model import DkmsModule, InstalledKernel, Limits, LoaderLibrary
from tests.simulator.helpers import write

ROCKY = """
NAME="Rocky Linux"
VERSION_ID="9.6"
# a comment = no key
ID=rocky
ID_LIKE='rhel centos fedora'
PRETTY_NAME="Rocky Linux 9.6 (Blue Onyx)"
"""
# cpuinfo has Features there and no line of flags.
ARM = "processor\t: 0\nFeatures\t: fp asimd evtstrm aes\nCPU part\t: 0xd4f\n"
# /proc/self/mountinfo of a pod under containerd, of a rootless podman, of a host, and the line that enroot adds.
OVERLAY = "1030 990 0:94 / / rw,relatime master:271 - overlay overlay rw,lowerdir=/var/lib/containerd/1/fs\n"
FUSE = "598 537 0:46 / / ro,nodev,relatime - fuse.fuse-overlayfs fuse-overlayfs rw,user_id=0\n"
PARTITION = "29 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
ENROOT = "71 29 259:2 /enroot/data/app/.lock /.lock ro,nosuid,nodev,noexec - ext4 /dev/nvme0n1p2 rw\n"


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Read a system made of these files."""
    for name in ("container", "KUBERNETES_SERVICE_HOST", "APPTAINER_NAME", "SINGULARITY_NAME"):
        monkeypatch.delenv(name, raising=False)

    def system(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return read_system(tmp_path, tmp_path)

    return system


def test_os_release_is_read_with_its_quotes(system):
    seen = system({"etc/os-release": ROCKY})

    assert (seen.os_id, seen.os_version, seen.os_name) == ("rocky", "9.6", "Rocky Linux 9.6 (Blue Onyx)")
    assert seen.arch
    assert seen.hostname


def test_second_place_of_os_release(system, tmp_path):
    assert system({"usr/lib/os-release": ROCKY}).os_id == "rocky"
    assert os_release(tmp_path)["ID_LIKE"] == "rhel centos fedora"


def test_system_without_os_release(system):
    assert (system({}).os_id, system({}).os_name) == ("linux", "Linux")


@pytest.mark.parametrize(
    ("files", "virtual"),
    [
        ({}, None),
        ({"sys/class/dmi/id/sys_vendor": "QEMU\n"}, "kvm"),
        ({"sys/class/dmi/id/product_name": "VMware Virtual Platform\n"}, "vmware"),
        ({"sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/product_name": "p4d.24xlarge\n"}, "amazon"),
        ({"sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/product_name": "g4dn.metal\n"}, None),
        (
            {
                "sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n",
                "sys/class/dmi/id/product_name": "Virtual Machine\n",
            },
            "microsoft",
        ),
        ({"sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n", "sys/class/dmi/id/product_name": "C2030\n"}, None),
        ({"sys/class/dmi/id/sys_vendor": "Supermicro\n"}, None),
        ({"sys/hypervisor/type": "xen\n"}, "xen"),
        ({"proc/cpuinfo": "processor : 0\nflags\t\t: fpu vme hypervisor lm\n"}, "vm"),
        ({"proc/cpuinfo": "processor : 0\nflags\t\t: fpu vme lm\n"}, None),
        ({".dockerenv": ""}, None),
        ({"dev/dxg": "", "proc/cpuinfo": "processor : 0\nflags\t\t: fpu vme hypervisor lm\n"}, "wsl"),
        ({"proc/cpuinfo": ARM}, None),
        ({"proc/cpuinfo": ARM, "proc/device-tree/hypervisor/compatible": "linux,kvm\0"}, "kvm"),
        ({"proc/cpuinfo": ARM, "proc/device-tree/hypervisor/compatible": "xen,xen-4.17\0xen,xen\0"}, "xen"),
    ],
)
def test_the_hypervisor_is_named(system, files, virtual):
    """It hides the real PCI tree, so the checks judge widths by it."""
    assert system(files).virtual == virtual


@pytest.mark.parametrize(
    ("files", "container"),
    [
        ({}, None),
        ({".dockerenv": ""}, "docker"),
        ({"run/.containerenv": ""}, "podman"),
        ({"run/systemd/container": "lxc\n"}, "lxc"),
        ({".dockerenv": "", "sys/class/dmi/id/sys_vendor": "QEMU\n"}, "docker"),
        ({"sys/class/dmi/id/sys_vendor": "QEMU\n"}, None),
        ({"proc/self/mountinfo": OVERLAY}, "container"),
        ({"proc/self/mountinfo": FUSE}, "container"),
        ({"proc/self/mountinfo": OVERLAY, ".dockerenv": ""}, "docker"),
        ({"proc/self/mountinfo": OVERLAY, "run/systemd/system/x": ""}, None),
        ({"proc/self/mountinfo": PARTITION}, None),
        ({"proc/self/mountinfo": OVERLAY + PARTITION}, None),
        ({"proc/self/mountinfo": PARTITION + ENROOT}, "enroot"),
        ({"proc/self/mountinfo": "\n12 34\n"}, None),
    ],
)
def test_the_container_is_named_in_addition_to_the_hypervisor(system, files, container):
    """A container on a virtual machine is both; neither excuses the other's limits.

    containerd and CRI-O leave no marker file. A network-booted host has an overlay as root too, and runs systemd.
    """
    assert system(files).container == container


@pytest.mark.parametrize(
    ("variable", "container"),
    [
        ("KUBERNETES_SERVICE_HOST", "kubernetes"),
        ("APPTAINER_NAME", "apptainer"),
        ("SINGULARITY_NAME", "singularity"),
        ("container", "lxc"),
    ],
)
def test_container_is_detected_by_the_variable_of_its_runtime(system, monkeypatch, variable, container):
    """A pod under containerd has neither /.dockerenv nor /run/.containerenv."""
    monkeypatch.setenv(variable, "lxc")

    assert system({}).container == container


def test_a_simulated_machine_is_in_no_container(tmp_path):
    """The lab's hosts are containers, and the machines simulated in them are whole."""
    (tmp_path / ".dockerenv").touch()

    assert read_system(tmp_path / "simulated", tmp_path).container is None


OLD, NEW = "5.15.0-97-generic", "5.15.0-113-generic"


def test_kernels_are_ordered_by_number_and_leftovers_are_none(tmp_path):
    for release in (OLD, NEW):
        (tmp_path / "lib/modules" / release / "kernel").mkdir(parents=True)
    (tmp_path / "lib/modules" / NEW / "build").mkdir()
    (tmp_path / "lib/modules" / OLD / "updates/dkms").mkdir(parents=True)
    (tmp_path / "lib/modules" / OLD / "updates/dkms/nvidia.ko").write_text("version=580.95.05\n")
    (tmp_path / "lib/modules/5.15.0-91-generic/updates").mkdir(parents=True)

    assert read_kernels(tmp_path, OLD, simulated=True) == (
        InstalledKernel(release=OLD, running=True, headers=False, nvidia="580.95.05"),
        InstalledKernel(release=NEW, running=False, headers=True, nvidia=None),
    )


def test_link_to_headers_that_are_gone_is_no_headers(tmp_path):
    """The package was removed and its link stayed: DKMS fails then."""
    (tmp_path / "lib/modules" / NEW / "kernel").mkdir(parents=True)
    (tmp_path / "lib/modules" / NEW / "build").symlink_to(tmp_path / "usr/src/gone")

    assert not read_kernels(tmp_path, NEW, simulated=True)[0].headers


def test_states_of_dkms(tmp_path):
    """As ``dkms status`` judges: added by the source, built by the module, installed by the link to this version."""
    tree = tmp_path / "var/lib/dkms/nvidia"
    for version in ("580.95.05", "575.57.08"):
        (tree / version).mkdir(parents=True)
        (tree / version / "source").symlink_to(f"/usr/src/nvidia-{version}")
    for kernel in (OLD, NEW):
        (tree / "580.95.05" / kernel / "x86_64/module").mkdir(parents=True)
    (tree / "575.57.08" / OLD / "x86_64/module").mkdir(parents=True)
    (tree / f"kernel-{OLD}-x86_64").symlink_to(f"580.95.05/{OLD}/x86_64")

    assert read_dkms(tmp_path) == (
        DkmsModule(name="nvidia", version="575.57.08", state="built", kernel=OLD),
        DkmsModule(name="nvidia", version="580.95.05", state="built", kernel=NEW),
        DkmsModule(name="nvidia", version="580.95.05", state="installed", kernel=OLD),
    )


@pytest.mark.parametrize(
    ("content", "answer"), [(b"\x06\0\0\0\x01", True), (b"\x06\0\0\0\x00", False), (b"\x06\0\0\0", None)]
)
def test_secure_boot_is_the_firmwares_variable(tmp_path, content, answer):
    variables = tmp_path / "sys/firmware/efi/efivars"
    variables.mkdir(parents=True)
    (variables / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(content)

    assert read_secure_boot(tmp_path) is answer


def test_container_without_firmware_folder_does_not_tell(tmp_path):
    assert read_secure_boot(tmp_path) is None


GIB = 1 << 30


@pytest.fixture
def machine(tmp_path):
    """A host on a machine with these surroundings."""

    def machine(**answers):
        write(tmp_path)
        if answers:
            (tmp_path / "surroundings.json").write_text(json.dumps(answers))
        return LiveSource(Place(isolated=False, deadline_s=1, machine=tmp_path))

    return machine


def test_what_is_not_said_is_that_of_a_healthy_host(machine, monkeypatch):
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    host = machine()

    facts = host.read("limits", "environment", "secure_boot", "library:libc")
    assert facts.limits == Limits(shm_bytes=16 * GIB, shm_free_bytes=16 * GIB, memlock_bytes=-1, nofile=1 << 20)
    assert (facts.environment, facts.secure_boot, facts.libraries) == ({}, False, ())


def test_what_is_said_replaces_it(machine):
    library = {"soname": "libnccl.so.2", "path": "/opt/lib/libnccl.so.2", "source": "LD_LIBRARY_PATH"}
    host = machine(
        shm_bytes=64 << 20,
        memlock_bytes=65536,
        environment={"NCCL_P2P_DISABLE": "1", "HOME": "/home/x"},
        secure_boot=True,
        libraries=[library],
        python={"torch": "2.7.1+cu128"},
    )

    facts = host.read("limits", "environment", "secure_boot", "library:libnccl", "library:libcudart")
    assert facts.limits == Limits(shm_bytes=64 << 20, shm_free_bytes=64 << 20, memlock_bytes=65536, nofile=1 << 20)
    assert (facts.environment, facts.secure_boot) == ({"NCCL_P2P_DISABLE": "1"}, True)
    assert facts.libraries == (LoaderLibrary(**library),)
    packages = host.read("python:torch", "python:pytest").python_packages
    assert packages == {"torch": "2.7.1+cu128", "pytest": pytest.__version__}


def test_a_damaged_file_is_named(machine, tmp_path):
    machine(shm_bytes="much")

    with pytest.raises(ValueError, match=r"surroundings\.json: Expected `int`.*Write the simulated machine again"):
        surroundings(tmp_path)


def test_folders_of_the_hardware_are_the_machines(machine, tmp_path):
    host = machine()
    (tmp_path / "software.json").write_text('{"services": {}, "packages": {}}')
    (tmp_path / "root/dev").mkdir(exist_ok=True)
    (tmp_path / "root/dev/nvidia0").touch()

    found = host.read("folder:/dev", "folder:/dev/", "folder:/sys/kernel/slab", "folder:/etc").folders
    assert "nvidia0" in found["/dev"]
    assert "null" not in found["/dev"]
    assert found["/dev/"] == found["/dev"]
    assert found["/sys/kernel/slab"] is None
    assert "passwd" in found["/etc"]


def test_device_files_of_a_lab_host_are_those_that_its_packages_make(machine, tmp_path):
    """Its software is installed for real, and only its hardware is simulated."""
    host = machine()
    (tmp_path / "root/dev").mkdir(exist_ok=True)
    (tmp_path / "root/dev/nvidia0").touch()

    found = host.read("folder:/dev").folders["/dev"]
    assert "null" in found
    assert "nvidia0" not in found


CACHE = """3 libs found in cache `/etc/ld.so.cache'
\tlibnccl.so.2 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libnccl.so.2
\tlibcudart.so.12 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.12
\tlibcudart.so.12 (libc6) => /usr/lib32/libcudart.so.12
"""


def test_limits_of_this_process(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, 5))
    seen = read_limits()

    assert (seen.memlock_bytes, seen.nofile) == (-1, -1)
    assert (seen.shm_bytes or 0) >= (seen.shm_free_bytes or 0) >= 0


def test_missing_shared_memory_is_not_zero(monkeypatch, tmp_path):
    monkeypatch.setattr(of_host, "SHARED_MEMORY", str(tmp_path / "none"))

    assert read_limits().shm_bytes is None


def test_only_steering_variables_and_no_secret():
    environment = {
        "NCCL_P2P_DISABLE": "1",
        "CUDA_VISIBLE_DEVICES": "0",
        "LD_LIBRARY_PATH": "/opt/lib",
        "HOME": "/home/alice",
        "AWS_SECRET_ACCESS_KEY": "x",
        "NVIDIA_API_KEY": "nvapi-x",
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_USER": "alice",
        "TF_VAR_token": "y",
        "MY_NCCL_THING": "z",
    }

    assert steering(environment) == {
        "CUDA_VISIBLE_DEVICES": "0",
        "LD_LIBRARY_PATH": "/opt/lib",
        "NCCL_P2P_DISABLE": "1",
        "SLURM_JOB_ID": "77",
    }


def test_search_path_comes_before_the_cache(tmp_path, monkeypatch):
    """In the loader's own order: what stands first is what a program gets."""
    (tmp_path / "libnccl.so.2.27.3").touch()
    (tmp_path / "libnccl_static.a").touch()
    monkeypatch.setattr(of_host, "output", lambda _: CACHE)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")

    assert read_libraries(["libnccl"], f"{tmp_path}:/nonexistent") == (
        LoaderLibrary(soname="libnccl.so.2.27.3", path=f"{tmp_path}/libnccl.so.2.27.3", source="LD_LIBRARY_PATH"),
        LoaderLibrary(soname="libnccl.so.2", path="/usr/lib/x86_64-linux-gnu/libnccl.so.2", source="ldconfig"),
    )


def test_one_file_by_two_paths_is_one_library(monkeypatch, tmp_path):
    """LD_LIBRARY_PATH has /usr/local/cuda/lib64, as NVIDIA's guide says, and the cache where that leads."""
    (tmp_path / "targets").mkdir()
    (tmp_path / "lib64").symlink_to("targets")
    (tmp_path / "targets/libcudart.so.12").touch()
    monkeypatch.setattr(
        of_host, "output", lambda _: f"\tlibcudart.so.12 (libc6,x86-64) => {tmp_path}/targets/libcudart.so.12\n"
    )
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")

    (library,) = read_libraries(["libcudart"], f"{tmp_path}/lib64")
    assert library.source == "LD_LIBRARY_PATH"


def test_loader_cache_that_cannot_be_listed_is_not_empty(monkeypatch, tmp_path):
    """A folder on LD_LIBRARY_PATH is only half of what the loader searches."""
    (tmp_path / "libnccl.so.2").touch()
    monkeypatch.setattr(of_host, "output", lambda command: None)

    assert read_libraries(["libnccl"], str(tmp_path)) is None


def test_libraries_for_another_word_size_are_left_out(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")

    assert [library.path for library in cache_entries(CACHE)] == [
        "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
        "/usr/local/cuda/lib64/libcudart.so.12",
    ]


def test_libraries_of_an_arm_server(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    listing = "\tlibnccl.so.2 (libc6,AArch64) => /usr/lib/aarch64-linux-gnu/libnccl.so.2\n"

    assert len(list(cache_entries(listing))) == 1


def test_a_name_is_the_whole_stem():
    """libcudart is not libcudart_static, and libnvrtc-builtins is not libnvrtc."""
    assert belongs("libcudart.so.12", ["libcudart"])
    assert not belongs("libnvrtc-builtins.so.12.9", ["libnvrtc"])
    assert not belongs("libcudart", ["libcudart"])
