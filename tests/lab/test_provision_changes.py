"""A change of mind on a provisioned fleet, and what may go wrong on the way: steps x faults, then convergence.

The tests run in the order they stand in: each needs the state of the one before. What each fault meets stands at its
test, and in the table that the run ends with; further rows come from test_provision, test_scale and test_interruption.
"""

import os
import re
import signal
import subprocess
import time

import pytest

from tests.lab import engines, guide_sources
from tests.lab.e2e import (
    HOSTS,
    INVENTORY,
    LAB,
    container,
    docker,
    driver_versions,
    finished,
    held,
    installed,
    make,
    on_host,
    provision_json,
    start,
    until,
    wished,
    with_wish,
)

pytestmark = pytest.mark.lab

# /dev is the one small file system of a container: 64 MiB. apt's archives go there, and it is filled up.
ARCHIVES = "/var/cache/apt/archives"
FILL = f"""mv {ARCHIVES} {ARCHIVES}.kept && mkdir -p /dev/archives/partial && ln -s /dev/archives {ARCHIVES}
cat /dev/zero >/dev/filler 2>/dev/null || :"""
EMPTY = f"rm -rf {ARCHIVES} /dev/archives /dev/filler && mv {ARCHIVES}.kept {ARCHIVES}"
DRIVER_VERSION = "/run/gpucheck-simulator/root/proc/driver/nvidia/version"
OTHER = {"kernel_module": "proprietary", "cudnn": "none"}
# The clock of a container is its machine's: every Python on the host is told another time.
CLOCK = "/usr/lib/python3/dist-packages/zz-clock.pth"
YESTERDAY = "import time; time.time = lambda real=time.time: real() - 86400"
OLD, NEW = "580.95.05", "580.178.04"


@pytest.fixture(scope="module")
def before(first):
    """The packages of the provisioned hosts."""
    return {host: installed(host) for host in HOSTS}


@pytest.fixture(scope="module")
def own_spec(first):
    """stack.yml as the lab wrote it."""
    return INVENTORY.with_name("stack.yml").read_text()


@pytest.fixture(scope="module")
def other_wish(before, own_spec):
    """The older driver, the other flavour on the H100s, no cuDNN."""
    with wished(driver=OLD, **OTHER) as path:
        yield path


@pytest.fixture(scope="module")
def told(before):
    """Container engines that the hosts were provisioned without."""
    engines.install()


def flavour(host):
    """Which kernel modules are loaded, by the licence that the driver itself tells."""
    return "open" if "Open Kernel Module" in on_host(host, "cat", DRIVER_VERSION) else "proprietary"


@pytest.mark.fault("before anything", "busy GPUs, Secure Boot, no space, a foreign driver, a wrong clock")
def test_an_unsafe_change_is_refused_with_every_reason_before_any_host_changes(other_wish, before, told, reports):
    """Each host has reasons of its own, all of them are said, and each with a way out."""
    efi = "/run/gpucheck-simulator/root/sys/firmware/efi/efivars"
    name = f"{efi}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    try:
        docker("exec", "-d", container("lab-apt"), "sh", "-c", "exec 3</dev/nvidia0; exec sleep 900")
        on_host("lab-apt", "sh", "-c", f"echo '{YESTERDAY}' > {CLOCK}")
        on_host("lab-dnf", "sh", "-c", f"mkdir -p {efi}; printf '\\006\\000\\000\\000\\001' > {name}")
        on_host("lab-dnf", "touch", "/usr/bin/nvidia-uninstall")
        run = with_wish(reports, "plan", args="-e preflight_minimum_free_gib=9999999")
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


@pytest.mark.fault("package lists", "the mirror is gone")
def test_a_mirror_that_is_gone_leaves_both_hosts_as_they_are(other_wish, before, reports):
    docker("stop", "--time", "1", f"{LAB}-mirror")
    try:
        run = with_wish(reports, args="--skip-tags verify")
    finally:
        docker("start", f"{LAB}-mirror")

    assert run.status != 0
    for host in HOSTS:
        entry = provision_json(reports)["hosts"][host]
        assert entry["state"] == "failed"
        assert "check the address in stack.yml" in " ".join(entry["failure"].split())
        assert installed(host) == before[host]


@pytest.mark.fault("apt's transaction", "the disk is full")
@pytest.mark.fault("dnf's transaction", "the power goes")
def test_a_full_disk_is_named_while_the_other_host_loses_its_power(other_wish, before, reports):
    """Two faults at once, on two hosts: neither hides the other."""
    on_host("lab-apt", "sh", "-c", FILL)
    running = start("provision", reports, inventory=INVENTORY, args="--skip-tags verify")
    try:
        until(lambda: f" {OLD}-" in " ".join(installed("lab-dnf")), "dnf to have begun its transaction")
        docker("kill", container("lab-dnf"))
        run = finished(running)
    finally:
        docker("start", container("lab-dnf"))
        on_host("lab-apt", "sh", "-c", EMPTY)

    assert run.status != 0
    hosts = provision_json(reports)["hosts"]
    assert hosts["lab-apt"]["state"] == "failed"
    assert re.search("space", hosts["lab-apt"]["failure"])
    assert hosts["lab-dnf"]["state"] in ("unreachable", "failed")
    assert held("lab-apt") >= {"libnvidia-compute-580", "nvidia-dkms-580"}


@pytest.mark.fault("dpkg's transaction", "the power goes, a package is half configured")
def test_the_power_goes_in_the_middle_of_dpkgs_transaction_and_the_other_host_converges(other_wish, reports):
    """The dnf host comes from a transaction that was cut off, and gets to its plan in this run."""
    running = start("provision", reports, inventory=INVENTORY, args="--skip-tags verify")
    unfinished = "dpkg-query -W -f '${db:Status-Abbrev}\\n' | grep -qE '^.[HUFWt]'"
    try:
        until(
            lambda: docker("exec", container("lab-apt"), "sh", "-c", f"{unfinished} && echo yes || echo no") == "yes",
            "dpkg to have a package half configured",
        )
        docker("kill", container("lab-apt"))
        run = finished(running)
    finally:
        docker("start", container("lab-apt"))

    assert run.status != 0
    hosts = provision_json(reports)["hosts"]
    assert hosts["lab-apt"]["state"] in ("unreachable", "failed")
    assert hosts["lab-dnf"]["state"] == "changed"
    assert driver_versions("lab-dnf") == {OLD}


@pytest.mark.fault("apt's transaction", "the controller is killed")
def test_a_killed_controller_leaves_a_host_that_the_next_run_continues(other_wish, reports):
    running = start("provision", reports, inventory=INVENTORY, args="--skip-tags verify")
    until(lambda: f" {OLD}-" in " ".join(installed("lab-apt")), "apt to have begun its transaction")
    os.kill(running.pid, signal.SIGKILL)
    for pid in subprocess.run(
        ["pgrep", "-f", f"ansible-playbook -i .*{LAB}/"], capture_output=True, text=True, check=False
    ).stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    finished(running)
    time.sleep(1)

    run = with_wish(reports)

    assert run.status == 0, run.text
    assert "PASS 2 hosts: 2 pass SIMULATED" in run.plain
    assert provision_json(reports)["hosts"]["lab-apt"]["state"] == "changed"


@pytest.mark.parametrize("host", HOSTS)
def test_after_all_that_the_host_is_exactly_as_planned(other_wish, before, host):
    """The older driver in every part, no cuDNN, every planned package held, and nobody else's package touched."""
    assert driver_versions(host) == {OLD}
    assert flavour(host) == "proprietary"
    now = {row.split()[0] for row in installed(host)}
    assert not any("cudnn" in name for name in now)
    gone = {row.split()[0] for row in before[host]} - now
    # The compiler came with the open modules, whose build needs it.
    assert all(re.search("cudnn|pinning|firmware|kmod-nvidia-open|gcc-c|g\\+\\+", name) for name in gone), gone
    assert not any("cudnn" in name or NEW in name for name in held(host))
    assert any("nccl" in name for name in held(host))


def test_running_engines_were_told_of_the_gpus_and_keep_the_sites_settings(other_wish, told):
    """Docker by a reload, containerd by a restart in the same boot."""
    settings = engines.docker_settings()
    assert settings["log-driver"] == "journald"
    assert "nvidia" in settings["runtimes"]
    assert engines.book("lab-apt")[-1] == "reload"
    assert "conf.d/*.toml" in on_host("lab-dnf", "cat", "/etc/containerd/config.toml")
    assert "runtimes.nvidia]" in on_host("lab-dnf", "cat", "/etc/containerd/conf.d/99-nvidia.toml")
    starts = engines.book("lab-dnf")
    assert starts[-1] == starts[-2]


@pytest.mark.fault("apt's transaction", "another program holds the lock")
def test_a_lock_that_another_program_holds_is_waited_for_and_rollback_returns_to_the_set_before(
    other_wish, before, reports
):
    """As unattended-upgrades would: apt's lock is held while the rollback reaches it, then let go."""
    holder = (
        "import fcntl,time; f=open('/var/lib/dpkg/lock-frontend','w'); fcntl.lockf(f,fcntl.LOCK_EX); time.sleep(25)"
    )
    docker("exec", "-d", container("lab-apt"), "python3", "-c", holder)

    run = with_wish(reports, "rollback", args="--skip-tags verify")

    assert run.status == 0, run.text
    for host in HOSTS:
        assert installed(host) == before[host]
        assert provision_json(reports)["hosts"][host]["state"] == "changed"
        assert provision_json(reports)["hosts"][host]["reboots"] == 1
    assert flavour("lab-dnf") == "open"
    assert provision_json(reports)["playbook"] == "rollback"


@pytest.fixture(scope="module")
def guide(before):
    """The contents of source files as NVIDIA's guide has a person write them, on both hosts."""
    return guide_sources.write()


def test_source_files_of_nvidias_guide_are_replaced_and_no_package_moves(guide, before, own_spec, reports):
    INVENTORY.with_name("stack.yml").write_text(own_spec)
    run = with_wish(reports, args="--skip-tags verify")

    assert run.status == 0, run.text
    assert provision_json(reports)["counts"] == {"changed": 2}
    for host, path in guide_sources.PATHS.items():
        assert "names the same repository" in str(provision_json(reports)["hosts"][host]["changes"])
        assert on_host(host, "sh", "-c", f"ls {path} 2>/dev/null || echo none") == "none"
        assert installed(host) == before[host]


def test_deprovision_says_what_would_go_and_waits_for_a_word(first, before, reports):
    run = make("deprovision", reports, inventory=INVENTORY)

    assert run.status != 0
    assert "make deprovision CONFIRM=yes" in run.plain
    assert "nvidia-dkms-580" in run.plain
    assert {host: installed(host) for host in HOSTS} == before


@pytest.fixture(scope="module")
def bare():
    """The packages of the images that the hosts were made from."""
    found = {}
    for host in HOSTS:
        image = docker("inspect", "--format", "{{.Config.Image}}", container(host))
        words = {"lab-apt": ["dpkg-query", "-W", "-f", "${Package}\n"], "lab-dnf": ["rpm", "-qa", "--qf", "%{NAME}\n"]}
        found[host] = set(docker("run", "--rm", "--entrypoint", words[host][0], image, *words[host][1:]).split())
    return found


def test_deprovision_removes_everything_of_ours_and_only_that(guide, bare, reports):
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
    for host, (path, content) in engines.SITES_OWN.items():
        assert on_host(host, "cat", path) == content
    assert {host: on_host(host, "cat", path) for host, path in guide_sources.PATHS.items()} == guide
    assert not any("nvidia" in entry for entry in held("lab-dnf"))
