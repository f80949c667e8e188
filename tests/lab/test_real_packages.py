"""A Debian 12 host provisioned from Debian's own archive: real packages, a real DKMS build, a real NVML, a real nvcc.

Opt-in (make test-real-packages): it downloads about 2 GB, takes 12 GB of disk and a quarter of an hour, most of it
compiling. Only the GPUs and the kernel's release are SIMULATED, so the module is built and never loaded.
The tests run in the order they stand in: each needs the state of the one before.
"""

import json
import os
import re
import subprocess

import pytest

from tests.lab.e2e import ROOT, Run, provision_json

pytestmark = pytest.mark.real_packages

# GPUCHECK_TEST_REAL_LAB names a lab that is already up; it is used as it is, and left standing.
KEPT = os.environ.get("GPUCHECK_TEST_REAL_LAB")
LAB = KEPT or os.environ.get("GPUCHECK_TEST_REAL_NAME", "gpucheck-real")
SUBNET = os.environ.get("GPUCHECK_TEST_SUBNET", "10.213.44.0/24")
HOST, CONTAINER = "lab-debian", f"{LAB}-debian"
GPUCHECK = "/opt/gpucheck/bin/gpucheck"
DRIVER, PACKAGE = "535.309.01", "535.309.01-0+deb12u1"
MODULES = ("nvidia-current", "nvidia-current-uvm", "nvidia-current-modeset", "nvidia-current-drm")
CUDA = """#include <cstdio>
__global__ void add(int *x) { *x += 1; }
int main() { int n = -1; cudaError_t e = cudaGetDeviceCount(&n); add<<<1, 1>>>(nullptr); std::printf("%d", (int)e); }
"""


def gpucheck(*words: str) -> str:
    environment = {**os.environ, "GPUCHECK_LAB_SUBNET": SUBNET}
    command = [str(ROOT / ".venv/bin/gpucheck"), *words, "--name", LAB]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def ask(*command: str) -> "subprocess.CompletedProcess[str]":
    """A command on the host, however it ends."""
    return subprocess.run(["docker", "exec", CONTAINER, *command], capture_output=True, text=True, check=False)


def said(*command: str) -> str:
    done = ask(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def installed() -> set[str]:
    rows = said("dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package} ${Version}\n").splitlines()
    return {row[3:].strip() for row in rows if row[1:2] == "i"}


@pytest.fixture(scope="module")
def inventory():
    if not KEPT:
        gpucheck("lab", "down")
    words = [ROOT / ".venv/bin/python", "-m", "tests.lab.real_packages", LAB, SUBNET]
    yield subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    if not KEPT:
        gpucheck("lab", "down")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("real")


@pytest.fixture
def make(inventory, folder):
    """A make target on this host. args: for ansible-playbook."""

    def run(target: str, args: str = "", **more: str) -> Run:
        words = ["make", target, f"INVENTORY={inventory}", f"REPORTS={folder}/reports"]
        words += [f"ARGS=-e build_dir={folder}/build {args}", *(f"{key}={value}" for key, value in more.items())]
        return Run(subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False))

    return run


@pytest.fixture(scope="module")
def kernel(inventory):
    return said("cat", "/usr/lib/gpucheck-lab/kernel-release")


@pytest.fixture(scope="module")
def before(inventory):
    """The host's packages before anything of ours was there."""
    return installed()


def failure(folder) -> str:
    return " ".join(provision_json(folder / "reports")["hosts"][HOST]["failure"].split())


def dpkg_log() -> str:
    """What apt and dpkg did so far, in lines."""
    return said("cat", "/var/log/dpkg.log")


def test_the_host_is_what_it_says_and_bare(before, kernel):
    assert 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"' in said("cat", "/etc/os-release")
    assert re.fullmatch(r"6\.1\.0-\d+-amd64", kernel)
    assert not [row for row in before if re.search(r"nvidia|cuda|dkms|linux-headers", row)]
    assert "non-free" not in said("cat", "/etc/apt/sources.list.d/debian.sources")


def test_the_plan_names_the_archives_packages_and_changes_nothing(make, before, kernel):
    run = make("plan")

    assert run.status == 0, run.text
    for words in (
        "from the distribution's own archive",
        f"nvidia-kernel-dkms {PACKAGE} is not installed",
        f"linux-headers-{kernel} is needed to build the module",
        "gpucheck-archive.sources is missing or different: contrib, non-free, non-free-firmware of the host",
        f"no nvidia module is built for kernel {kernel}, planned {DRIVER}",
    ):
        assert words in run.plain
    assert installed() == before


def test_dkms_really_compiles_and_the_kernel_that_runs_refuses_the_module(make, folder, kernel):
    """Built for the host's kernel; what really runs is the engine's, and the run says so instead of rebooting."""
    run = make("provision")

    assert run.status != 0
    assert said("dkms", "status") == f"nvidia-current/{DRIVER}, {kernel}, x86_64: installed"
    for module in MODULES:
        assert said("modinfo", "-k", kernel, "-F", "version", module) == DRIVER
    assert "vermagic" in said("modinfo", "-k", kernel, "nvidia-current")
    words = failure(folder)
    assert f"driver {DRIVER} is installed and its module built for kernel {kernel}, but it cannot be loaded" in words
    assert "modprobe: FATAL" in words
    assert "The last lines of dmesg have the reason" in words
    # Once, for nouveau: its blacklist was written, and a GPU that nouveau holds is taken by no other module.
    assert provision_json(folder / "reports")["hosts"][HOST]["reboots"] == 1
    held = said("apt-mark", "showhold").split()
    assert {"nvidia-kernel-dkms", "libcuda1", "libnvidia-ml1", "nvidia-smi", "nvidia-persistenced"} <= set(held)


def test_everything_but_the_loading_is_there_and_gpucheck_judges_the_host(make, folder):
    """The rest of the plan, and the report of a host whose driver no kernel has taken."""
    run = make("provision", "--skip-tags driver,prove")

    assert run.status != 0
    assert "does not pass the quick verification" in failure(folder)
    assert make("verify").status != 0
    report = json.loads((folder / f"reports/{HOST}.json").read_text())
    assert report["simulated"] is True
    assert report["verdict"] == "fail"
    (finding,) = [row for row in report["findings"] if row["check"] == "driver"]
    assert (finding["verdict"], finding["cause"]) == ("fail", "driver-not-loaded")
    assert finding["code"] == "software.module-not-loaded"
    assert any(f"installed module: {DRIVER} proprietary" in row for row in finding["evidence"])


def test_it_was_the_real_nvml_that_said_so():
    """Debian's library, asked through pynvml and through the real nvidia-smi."""
    library = said("readlink", "-f", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
    assert library.endswith(f"libnvidia-ml.so.{DRIVER}")
    assert said("dpkg", "-S", library).startswith("libnvidia-ml1:amd64:")

    code = "import pynvml\ntry: pynvml.nvmlInit()\nexcept pynvml.NVMLError as error: print(error.value, error)"
    assert said("/opt/gpucheck/venv/bin/python", "-c", code) == "9 Driver Not Loaded"
    smi = ask("nvidia-smi")
    assert smi.returncode == 9
    assert "couldn't communicate with the NVIDIA driver" in smi.stdout

    done = ask(GPUCHECK, "verify", "--only", "driver")
    assert done.returncode == 2
    assert "DRIVER_NOT_LOADED" in done.stdout.upper().replace(" ", "_")


def test_the_real_compiler_makes_a_program_that_finds_no_gpu():
    """nvcc of the archive with the g++ beside it; 100 is cudaErrorNoDevice."""
    subprocess.run(
        ["docker", "exec", "-i", CONTAINER, "sh", "-c", "cat >/tmp/add.cu"], input=CUDA, text=True, check=True
    )

    said("nvcc", "-o", "/tmp/add", "/tmp/add.cu")

    assert "release 11.8" in said("nvcc", "--version")
    assert said("/tmp/add") == "100"


def test_a_second_run_moves_no_package_and_compiles_nothing(make, kernel):
    """What is left to do is the loading, and that is said again."""
    log, module = dpkg_log(), said("stat", "-c", "%Y", f"/lib/modules/{kernel}/updates/dkms/nvidia-current.ko")

    run = make("provision")

    assert run.status != 0
    assert dpkg_log() == log
    assert said("stat", "-c", "%Y", f"/lib/modules/{kernel}/updates/dkms/nvidia-current.ko") == module
    assert "but it cannot be loaded" in run.plain


def test_a_driver_package_that_installed_without_headers_is_caught(make, folder, kernel):
    """The trap: the package exits with 0, DKMS stays at added, and a reboot would come back without any driver."""
    headers = f"/usr/src/linux-headers-{kernel}"
    said("apt-get", "-qq", "purge", "--yes", "--allow-change-held-packages", "nvidia-kernel-dkms")
    said("mv", headers, f"{headers}.away")
    try:
        run = make("provision")
        status = said("dkms", "status")
    finally:
        said("mv", f"{headers}.away", headers)

    assert run.status != 0
    assert said("dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Version}", "nvidia-kernel-dkms") == f"hi {PACKAGE}"
    assert status == f"nvidia-current/{DRIVER}: added"
    words = failure(folder)
    assert f"DKMS did not build the planned module for the running kernel {kernel} (installed module: none)" in words
    assert "Its headers are missing: install the header package of exactly this kernel" in words
    assert "The host was not rebooted" in words


def test_deprovision_takes_everything_of_ours_away(make, before):
    run = make("deprovision", CONFIRM="yes")

    assert run.status == 0, run.text
    # By name: what was there before moved up where a package of ours needed it newer (libperl5.36 and perl-base).
    assert {row.split()[0] for row in installed()} == {row.split()[0] for row in before}
    for path in (
        "/etc/apt/sources.list.d/gpucheck-archive.sources",
        "/opt/gpucheck",
        "/etc/gpucheck",
        "/var/lib/gpucheck",
    ):
        assert ask("test", "-e", path).returncode == 1, path
    assert said("apt-mark", "showhold") == ""
