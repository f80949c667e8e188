"""Another set on a provisioned fleet: refused while it is unsafe, installed, taken back, and everything removed.

The tests run in the order they stand in: each needs the state of the one before. test_provision_faults has what goes
wrong in the middle of a change.
"""

import json
import re

import pytest

from tests.lab.changes import NEW, OLD, has_other_set, rolled_back
from tests.lab.e2e import HOSTS, INVENTORY, container, docker, held, installed, make, on_host, provision_json, with_spec

pytestmark = pytest.mark.lab

# The clock of a container is its machine's: every Python on the host reads another time.
CLOCK = "/usr/lib/python3/dist-packages/zz-clock.pth"
YESTERDAY = "import time; time.time = lambda real=time.time: real() - 86400"


# Container engines that only keep book of what is asked of them. Not in /run: it outlives a boot.
BOOK = "/var/tmp/engine"
PROGRAMS = {"lab-apt": ("dockerd",), "lab-dnf": ("containerd", "kubelet")}
SERVICES = {"lab-apt": "docker", "lab-dnf": "containerd"}
SITES_OWN = {
    "lab-apt": ("/etc/docker/daemon.json", '{"log-driver": "journald"}'),
    "lab-dnf": ("/etc/containerd/config.toml", "version = 2"),
}
UNIT = f"""[Unit]
After=gpucheck-lab-boot.service
[Service]
ExecStart=/bin/sh -c 'echo start in boot $(cat /var/lib/gpucheck-lab/boots) >>{BOOK}; exec sleep infinity'
ExecReload=/bin/sh -c 'echo reload >>{BOOK}'
[Install]
WantedBy=multi-user.target
"""


def put(host: str, path: str, content: str, mode: str = "644") -> None:
    """A file on a host."""
    script = 'mkdir -p "$(dirname "$1")" && printf %s "$2" >"$1" && chmod "$3" "$1"'
    on_host(host, "sh", "-c", script, "sh", path, content, mode)


def install() -> None:
    """A running engine on each host: Docker on the one, a containerd that serves kubelet on the other."""
    for host, service in SERVICES.items():
        for program in PROGRAMS[host]:
            put(host, f"/usr/local/bin/{program}", "#!/bin/sh\n", "755")
        put(host, f"/etc/systemd/system/{service}.service", UNIT)
        put(host, *SITES_OWN[host])
        on_host(host, "systemctl", "enable", "--now", service)


def book(host: str) -> list[str]:
    """What the engine was asked, line by line."""
    return on_host(host, "cat", BOOK).splitlines()


def docker_settings() -> dict[str, object]:
    """daemon.json of the host with Docker."""
    found: dict[str, object] = json.loads(on_host("lab-apt", "cat", SITES_OWN["lab-apt"][0]))
    return found


@pytest.fixture(scope="module")
def engines_up(before):
    """Install container engines, which the hosts were provisioned without."""
    install()


@pytest.mark.fault("before anything", "busy GPUs, Secure Boot, no space, a foreign driver, a wrong clock")
def test_an_unsafe_change_is_refused_with_every_reason_before_any_host_changes(other_spec, before, engines_up, reports):
    """Each host has reasons of its own, all of them are said, and each with a way out."""
    efi = "/run/gpucheck-simulator/root/sys/firmware/efi/efivars"
    name = f"{efi}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    try:
        docker("exec", "-d", container("lab-apt"), "sh", "-c", "exec 3</dev/nvidia0; exec sleep 900")
        on_host("lab-apt", "sh", "-c", f"echo '{YESTERDAY}' > {CLOCK}")
        on_host("lab-dnf", "sh", "-c", f"mkdir -p {efi}; printf '\\006\\000\\000\\000\\001' > {name}")
        on_host("lab-dnf", "touch", "/usr/bin/nvidia-uninstall")
        run = with_spec(reports, "plan", args="-e preflight_minimum_free_gib=9999999")
    finally:
        on_host("lab-apt", "sh", "-c", f"pkill -x sleep; rm -f {CLOCK}")
        on_host("lab-dnf", "rm", "-rf", "/run/gpucheck-simulator/root/sys/firmware", "/usr/bin/nvidia-uninstall")

    assert run.status != 0
    until_next = "(.*?)(?=PLAY|lab-...: rejected)"
    apt, dnf = (re.findall(f"{host}: rejected, nothing was changed: {until_next}", run.plain)[0] for host in HOSTS)
    assert re.search(r"these programs use the GPUs: sleep \(\d+\)", apt)
    assert "drain_with" in apt
    assert re.search(r"its clock is 8\d{4} s behind the controller's", apt)
    assert "its clock is" not in dnf
    assert "driver packages of another source" in dnf
    assert "runfile" in dnf
    assert "Secure Boot is on" in dnf
    assert "mokutil" in dnf
    for said in (apt, dnf):
        assert re.search(r"GiB free for /usr, .*, required 1\d{7}\.\d GiB", said)
    assert {host: installed(host) for host in HOSTS} == before
    assert f"libnvidia-compute-580 is {NEW}-1ubuntu1, planned {OLD}-0ubuntu1" in run.plain
    assert re.search(r"cleanup: libcudnn9-cuda-12 \S+ is no longer planned", run.plain)
    assert "container_engine: docker is not configured for the runtime nvidia" in run.plain
    assert "container_engine: containerd is not configured for the runtime nvidia" in run.plain


def test_another_set_is_installed_and_every_part_of_it_is_as_planned(other_spec, before, engines_up, reports):
    run = with_spec(reports)

    assert run.status == 0, run.text
    assert "PASS 2 hosts: 2 pass SIMULATED" in run.plain
    for host in HOSTS:
        assert provision_json(reports)["hosts"][host]["state"] == "changed"
        has_other_set(host, before[host])


def test_running_engines_know_the_gpus_and_keep_the_sites_settings(other_spec, engines_up):
    """Docker by a reload, containerd by a restart in the same boot."""
    settings = docker_settings()
    assert settings["log-driver"] == "journald"
    assert "nvidia" in settings["runtimes"]
    assert book("lab-apt")[-1] == "reload"
    assert "conf.d/*.toml" in on_host("lab-dnf", "cat", "/etc/containerd/config.toml")
    assert "runtimes.nvidia]" in on_host("lab-dnf", "cat", "/etc/containerd/conf.d/99-nvidia.toml")
    starts = book("lab-dnf")
    assert starts[-1] == starts[-2]


def test_rollback_returns_to_the_set_before(other_spec, before, reports):
    run = with_spec(reports, "rollback", args="--skip-tags verify")

    rolled_back(run, reports, before)


def test_deprovision_says_what_would_go_and_waits_for_a_word(first, before, reports):
    run = make("deprovision", reports, inventory=INVENTORY)

    assert run.status != 0
    assert "make deprovision CONFIRM=yes" in run.plain
    assert "nvidia-dkms-580" in run.plain
    assert {host: installed(host) for host in HOSTS} == before


def test_deprovision_removes_everything_of_ours_and_only_that(engines_up, bare, reports):
    on_host("lab-apt", "sh", "-c", "echo '# the site' > /etc/modprobe.d/site.conf")

    run = make("deprovision", reports, inventory=INVENTORY, CONFIRM="yes")

    assert run.status == 0, run.text
    for host in HOSTS:
        assert {row.split()[0] for row in installed(host)} == bare[host] - {"gpg-pubkey"}
        for folder in ("/opt/gpucheck", "/etc/gpucheck", "/var/lib/gpucheck"):
            assert on_host(host, "sh", "-c", f"ls {folder} 2>/dev/null || echo none") == "none"
        assert (
            on_host(host, "sh", "-c", "ls /etc/apt/sources.list.d /etc/yum.repos.d 2>/dev/null | grep -c nvidia || :")
            == "0"
        )
        assert "nouveau" in on_host(host, "lsmod")
    assert on_host("lab-apt", "ls", "/etc/modprobe.d") == "site.conf"
    for host, (path, content) in SITES_OWN.items():
        assert on_host(host, "cat", path) == content
    assert not any("nvidia" in entry for entry in held("lab-dnf"))
