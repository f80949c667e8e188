"""The lab itself, on a real Docker engine: logins, signatures, reboots, and NVML between an upgrade and its reboot."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpucheck.lab.lifecycle import down, status, up
from gpucheck.lab.model import Lab, make_lab
from tests.lab.shell import Shell

pytestmark = pytest.mark.more_labs

OLD, NEW = "580.95.05", "580.178.04"
CUDA = {"lab-apt": "compute/cuda/repos/ubuntu2204/x86_64", "lab-dnf": "compute/cuda/repos/rhel9/x86_64"}
INIT = "import ctypes; print(ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())"
HOSTS = tuple(CUDA)


class Live:
    """The lab under test, and a shell on its hosts as an operator has it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.shell = Shell(lab.directory)

    def ssh(self, host: str, script: str, *, status: int | None = 0, known_hosts: Path | None = None) -> str:
        words = self.shell.words(host, "bash", "-s", known_hosts=known_hosts)
        done = subprocess.run(words, input=script, capture_output=True, text=True, check=False, timeout=120)
        assert status is None or done.returncode == status, f"{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def reboot(self, host: str) -> None:
        before = self.ssh(host, "cat /var/lib/gpucheck-lab/boots")
        self.ssh(host, "sudo systemctl reboot", status=None)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            after = self.ssh(
                host, "systemctl is-system-running --wait >/dev/null; cat /var/lib/gpucheck-lab/boots", status=None
            )
            if after.strip().isdigit() and int(after) == int(before) + 1:
                return
            time.sleep(0.5)
        raise AssertionError(f"{host} did not come back: {after}")

    def use_repository(self, host: str, *, tree: str = "", status: int = 0) -> str:
        """Point a host at NVIDIA's repository on the mirror, trusting the key that the good one is signed with."""
        url = f"http://{self.lab.mirror_ip}/{tree}{CUDA[host]}"
        key = f"http://{self.lab.mirror_ip}/{CUDA[host]}/key.asc"
        ours = "/etc/apt/keyrings/nvidia.asc"
        if host == "lab-apt":
            script = f"""set -e
                curl -sSf {key} | sudo tee {ours} >/dev/null
                echo 'deb [signed-by={ours}] {url}/ /' | sudo tee /etc/apt/sources.list.d/nvidia.list
                sudo apt-get -o APT::Update::Error-Mode=any update"""
        else:
            script = f"""set -e
                printf '%s\\n' '[cuda]' name=cuda baseurl={url}/ gpgcheck=1 repo_gpgcheck=1 gpgkey={key} \
                    | sudo tee /etc/yum.repos.d/cuda.repo
                sudo dnf -q -y --refresh --repo cuda makecache"""
        return self.ssh(host, script, status=status)

    def install_driver(self, host: str, version: str) -> None:
        if host == "lab-apt":
            revision = {OLD: "0ubuntu1", NEW: "1ubuntu1"}[version]
            names = "libnvidia-compute-580 nvidia-dkms-580 nvidia-utils-580 nvidia-persistenced"
            exact = " ".join(f"{name}={version}-{revision}" for name in names.split())
            script = f"""set -e
                sudo apt-get -qq install -y linux-headers-5.15.0-179-generic nvidia-driver-pinning-{version}
                sudo apt-get -qq install -y {exact}"""
        else:
            names = "nvidia-driver-cuda kmod-nvidia-open-dkms nvidia-kmod-common"
            exact = " ".join(f"{name}-3:{version}-1.el9" for name in names.split())
            script = f"""set -e
                sudo dnf -q -y module enable nvidia-driver:580-open
                sudo dnf -q -y install kernel-devel-matched {exact} nvidia-fabricmanager-{version}"""
        self.ssh(host, script)

    def nvml(self, host: str) -> int:
        """What nvmlInit returns on the host."""
        return int(self.ssh(host, f'python3 -c "{INIT}"'))


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    lab = make_lab("gpucheck-try", "10.213.42.0/24")
    down(lab.name, lab.root, images=False)
    up(lab)
    yield Live(lab)
    down(lab.name, lab.root, images=False)
    assert status(lab.name, lab.root)["state"] == "down"


@pytest.fixture(scope="module")
def driven(live: Live) -> Live:
    """Both hosts with the old driver installed and loaded: nouveau off, rebooted."""
    for host in HOSTS:
        live.use_repository(host)
        live.install_driver(host, OLD)
        rebuild = "update-initramfs -u" if host == "lab-apt" else "dracut --force"
        live.ssh(host, f"echo blacklist nouveau | sudo tee /etc/modprobe.d/nouveau.conf && sudo {rebuild}")
        assert live.nvml(host) == 9, "nouveau holds the GPUs until the reboot"
        live.reboot(host)
    return live


def test_up_again_does_nothing(live, capfd):
    """Silent, because every line that it says announces work; and the machines have not been touched."""
    before = status(live.lab.name, live.lab.root)
    boots = [live.ssh(host, "cat /var/lib/gpucheck-lab/boots; stat -c %Y /run/gpucheck-simulator") for host in HOSTS]

    up(live.lab)

    assert capfd.readouterr().err == ""
    assert status(live.lab.name, live.lab.root) == before
    assert before["state"] == "up"
    after = [live.ssh(host, "cat /var/lib/gpucheck-lab/boots; stat -c %Y /run/gpucheck-simulator") for host in HOSTS]
    assert after == boots


@pytest.mark.parametrize("host", HOSTS)
def test_a_login_with_strict_keys_is_an_operator_with_sudo(live, host):
    assert live.ssh(host, "whoami; sudo -n whoami; hostname").split() == ["ops", "root", host]


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_with_another_key_is_not_entered(live, host, tmp_path):
    """known_hosts says the other host's key for this address."""
    other = next(name for name in HOSTS if name != host)
    lines = (live.lab.directory / "known_hosts").read_text()
    swapped = lines.replace(live.shell.addresses[host], "x")
    swapped = swapped.replace(live.shell.addresses[other], live.shell.addresses[host])
    (tmp_path / "known_hosts").write_text(swapped)

    said = live.ssh(host, "true", status=255, known_hosts=tmp_path / "known_hosts")

    assert "Host key verification failed" in said


@pytest.mark.parametrize(("host", "system"), [("lab-apt", "ubuntu 22.04"), ("lab-dnf", "rocky 9.5")])
def test_a_bare_host_is_the_system_it_says_and_has_nouveau(live, host, system):
    said = live.ssh(host, ". /etc/os-release; echo $ID $VERSION_ID; cat /var/lib/gpucheck-lab/boots; lsmod")

    assert said.splitlines()[:2] == [system, "1"]
    assert "nouveau" in said


@pytest.mark.parametrize("host", HOSTS)
def test_a_repository_signed_with_another_key_is_refused(live, host):
    said = live.use_repository(host, tree="bad/", status=100 if host == "lab-apt" else 1)

    assert "NO_PUBKEY" in said if host == "lab-apt" else "repomd.xml GPG signature verification error" in said


def test_a_package_signed_with_another_key_is_refused(live):
    """Without repo_gpgcheck, the signature of the package itself is the last guard."""
    url = f"http://{live.lab.mirror_ip}"
    repository = (
        f"'[bad]' name=bad baseurl={url}/bad/{CUDA['lab-dnf']}/ gpgcheck=1 repo_gpgcheck=0 "
        f"gpgkey={url}/{CUDA['lab-dnf']}/key.asc"
    )

    said = live.ssh(
        "lab-dnf",
        f"printf '%s\\n' {repository} | sudo tee /etc/yum.repos.d/bad.repo; "
        "sudo dnf -y --repo bad install libnccl; code=$?; sudo rm /etc/yum.repos.d/bad.repo; exit $code",
        status=1,
    )

    assert "GPG check FAILED" in said
    assert "not installed" in live.ssh("lab-dnf", "rpm -q libnccl 2>/dev/null", status=1)


@pytest.mark.parametrize("host", HOSTS)
def test_the_reboot_brings_the_installed_driver_in(driven, host):
    assert driven.nvml(host) == 0
    said = driven.ssh(host, "nvidia-smi; cat /var/lib/gpucheck-lab/boots; lsmod")
    assert f"SIMULATED  NVIDIA-SMI stand-in   Driver Version: {OLD}" in said
    assert "nouveau" not in said


@pytest.mark.parametrize("host", HOSTS)
def test_an_upgrade_answers_version_mismatch_until_the_reboot(driven, host):
    """18: the library is new, the loaded module is old."""
    driven.install_driver(host, NEW)
    assert driven.nvml(host) == 18

    driven.reboot(host)

    assert driven.nvml(host) == 0
    assert NEW in driven.ssh(host, "nvidia-smi --query-gpu=driver_version --format=csv,noheader")


def test_fabric_manager_runs_only_beside_its_own_driver(driven):
    """After the upgrade test it is NEW that is loaded; an older fabric manager refuses."""
    state = "grep -h fabric.state /run/gpucheck-simulator/machine.txt | sort -u -k3"
    assert "gpu.0.fabric.state = in-progress" in driven.ssh("lab-dnf", state)

    driven.ssh("lab-dnf", f"sudo dnf -q -y downgrade nvidia-fabricmanager-{OLD}")
    driven.ssh("lab-dnf", "sudo systemctl start nvidia-fabricmanager", status=1)
    journal = driven.ssh("lab-dnf", "sudo journalctl --no-pager -u nvidia-fabricmanager")
    assert f"driver interface version {OLD} don't match with driver version {NEW}" in journal

    driven.ssh(
        "lab-dnf", f"sudo dnf -q -y install nvidia-fabricmanager-{NEW} && sudo systemctl start nvidia-fabricmanager"
    )
    assert driven.ssh("lab-dnf", state).split() == ["gpu.0.fabric.state", "=", "completed"]


def test_nothing_newer_than_planned_came_along(driven):
    """The traps were there all the time."""
    said = driven.ssh("lab-apt", "dpkg-query -W -f '${Package} ${Version}\\n' '*nvidia*'")
    assert "610" not in said
    assert "595" not in said


def test_a_second_lab_on_the_same_subnet_is_refused(live):
    from gpucheck.lab.system import LabUsageError

    with pytest.raises(LabUsageError, match="the Docker network gpucheck-try has"):
        up(make_lab("gpucheck-clash", str(live.lab.subnet)))
    assert status("gpucheck-clash", live.lab.root)["state"] == "down"


def test_every_host_says_what_it_is_not(live):
    """The stand-ins reach every report through simulation.json."""
    for host in HOSTS:
        assert "stub NVIDIA packages" in live.ssh(host, "cat /run/gpucheck-simulator/simulation.json")
