"""What gres.conf of a node has to say, from the files of driver and kernel (roles/slurm/files/gres.sh)."""

import subprocess

import pytest

from tests.playbooks.modules import ROLES
from tests.playbooks.stubs import put, script
from tests.playbooks.test_runs import play

SCRIPT = ROLES / "slurm/files/gres.sh"


@pytest.fixture
def host(tmp_path):
    """Write a host; what the script says of it, as lines by word."""

    def run(cpus, gpus, mig=(), plugins=()):
        """cpus: (first sibling, socket, NUMA node) of each. gpus: (address, minor, CPU list). mig: capability paths."""
        for number, (sibling, socket, node) in enumerate(cpus):
            folder = f"sys/devices/system/cpu/cpu{number}"
            put(tmp_path, f"{folder}/topology/thread_siblings_list", f"{sibling},{number}\n")
            put(tmp_path, f"{folder}/topology/physical_package_id", f"{socket}\n")
            (tmp_path / folder / f"node{node}").mkdir()
        for address, minor, near in gpus:
            put(tmp_path, f"proc/driver/nvidia/gpus/{address}/information", f"Model: x\nDevice Minor: \t {minor}\n")
            put(tmp_path, f"sys/bus/pci/devices/{address}/local_cpulist", f"{near}\n")
        for path, number in mig:
            put(tmp_path, f"proc/driver/nvidia/capabilities/{path}/access", f"DeviceFileMinor: {number}\nMode: 292\n")
        for name in plugins:
            put(tmp_path, f"plugins/{name}")
        words = ["sh", str(SCRIPT), str(tmp_path / "etc/slurm.conf"), str(tmp_path / "plugins"), str(tmp_path)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        found: dict[str, list[str]] = {}
        for line in done.stdout.splitlines():
            word, _, value = line.partition(" ")
            found.setdefault(word, []).append(value)
        return found

    return run


def threads(sockets, cores, interleaved=False):
    """Two threads of each core, in Linux' order: first threads, then second ones."""
    count = sockets * cores
    of = (lambda n: n % sockets) if interleaved else (lambda n: n // cores)
    return [(number % count, of(number % count), of(number % count)) for number in range(2 * count)]


def test_gpus_have_the_cores_of_their_socket(host):
    gpus = [(f"0000:{n}0:00.0", n, "0-3,8-11" if n < 3 else "4-7,12-15") for n in range(1, 5)]
    said = host(threads(2, 4), gpus, plugins=["gpu_nvml.so"])

    assert said["gres"] == ["Name=gpu File=/dev/nvidia[1-2] Cores=0-3", "Name=gpu File=/dev/nvidia[3-4] Cores=4-7"]
    assert (said["gpus"], said["cores"], said["nvml"]) == (["4"], ["8"], ["yes"])


def test_slurm_counts_cores_by_socket_where_linux_alternates_sockets(host):
    """Processor 1 is on the second socket: Slurm's core 4."""
    gpus = [("0000:10:00.0", 1, "1,3,5,7,9,11,13,15"), ("0000:20:00.0", 0, "0,2,4,6,8,10,12,14")]
    said = host(threads(2, 4, interleaved=True), gpus)

    assert said["gres"] == ["Name=gpu File=/dev/nvidia0 Cores=0-3", "Name=gpu File=/dev/nvidia1 Cores=4-7"]
    assert said["nvml"] == ["no"]


def test_numa_nodes_of_a_socket_are_counted_one_after_the_other(host):
    cpus = [(0, 0, 0), (1, 0, 1), (2, 0, 0), (3, 0, 1)]
    said = host(cpus, [("0000:10:00.0", 0, "0,2"), ("0000:20:00.0", 1, "1,3")])

    assert said["gres"] == ["Name=gpu File=/dev/nvidia0 Cores=0-1", "Name=gpu File=/dev/nvidia1 Cores=2-3"]


@pytest.mark.parametrize("near", ["0-7", ""])
def test_a_gpu_that_is_near_all_cores_or_none_has_no_cores(host, near):
    assert host(threads(1, 4), [("0000:10:00.0", 0, near)])["gres"] == ["Name=gpu File=/dev/nvidia0"]


def test_mig_instances_are_their_device_files(host):
    gpus = [("0000:10:00.0", 0, ""), ("0000:20:00.0", 1, "")]
    mig = [("gpu1/mig/gi3", 30), ("gpu1/mig/gi3/ci0", 31), ("gpu1/mig/gi4", 39), ("gpu1/mig/gi4/ci0", 40)]
    said = host([], gpus, mig)

    caps = "/dev/nvidia-caps/nvidia-cap"
    assert said["gres"] == [
        "Name=gpu File=/dev/nvidia0",
        f"Name=gpu MultipleFiles=/dev/nvidia1,{caps}30,{caps}31",
        f"Name=gpu MultipleFiles=/dev/nvidia1,{caps}39,{caps}40",
    ]
    assert (said["gpus"], said["mig"], said["cores"]) == (["3"], ["yes"], ["0"])


def test_a_host_without_a_driver_has_no_lines(host):
    said = host(threads(1, 2), [])

    assert ("gres" in said, said["gpus"]) == (False, ["0"])


def test_what_the_file_of_now_says_is_told_without_comments(host, tmp_path):
    put(tmp_path, "etc/gres.conf", "# ours\n\n  AutoDetect=nvml\nName=gpu File=/dev/nvidia0\n")
    assert host([], [])["old"] == ["AutoDetect=nvml", "Name=gpu File=/dev/nvidia0"]


def test_a_configuration_that_the_controller_sends_is_told_from_files_of_the_host(host, tmp_path):
    assert host([], [])["place"] == ["shared"]  # where slurmd has its configuration from is not known
    put(tmp_path, "run/slurm/conf/slurm.conf")
    assert host([], [])["place"] == ["served"]
    put(tmp_path, "etc/slurm.conf")
    assert host([], [])["place"] == ["local"]
    put(tmp_path, "proc/7/cmdline", "slurmd\0--conf-server\0head\0")
    assert host([], [])["place"] == ["served"]


@pytest.mark.parametrize("kind", ["nfs", "lustre", "UNKNOWN (0xaad7aaea)"])
def test_a_file_system_that_is_not_known_as_local_counts_as_shared(tmp_path, monkeypatch, kind):
    put(tmp_path, "slurm.conf")
    script(tmp_path / "stat", f"#!/bin/sh\necho '{kind}'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    words = ["sh", str(SCRIPT), str(tmp_path / "slurm.conf"), "/plugins", str(tmp_path)]
    assert "place shared\n" in subprocess.run(words, capture_output=True, text=True, check=True).stdout


STATED = {
    "gpu:8": ("", 8),
    "gpu:8(S:0-1)": ("", 8),
    "gpu:h100:8(S:0-1)": ("h100", 8),
    "gpu:nvidia_a100_1g.5gb:7": ("nvidia_a100_1g.5gb", 7),
    # The usual name of MIG instances begins with a digit.
    "gpu:1g.10gb:7(S:0)": ("1g.10gb", 7),
    "craynetwork:4,gpu:1g.10gb:2,tmpdisk:1": ("1g.10gb", 2),
    "gpu:2g.20gb": ("2g.20gb", 1),
}
SAID = """
- hosts: gpu
  connection: local
  gather_facts: false
  vars_files: [{vars}]
  tasks:
    - ansible.builtin.debug:
        msg: "STATED {{{{ stated }}}} {{{{ slurm_count }}}} {{{{ slurm_lines | join }}}}"
"""


def test_type_and_number_of_slurm_conf_are_those_of_gres_conf(tmp_path):
    """Without the type, slurmctld counts no GPU of that type and drains the node."""
    read = {"stdout": "place local\ncores 4\ngpus 1\ngres Name=gpu File=/dev/nvidia0"}
    hosts = {
        f"node{number}": {"stated": stated, "slurm_seen": {"stdout": f"NodeName=n Gres={stated} "}, "slurm_read": read}
        for number, stated in enumerate(STATED)
    }

    done = play(tmp_path, SAID.format(vars=ROLES / "slurm/vars/main.yml"), hosts=hosts)

    for stated, (kind, count) in STATED.items():
        type_ = f" Type={kind}" if kind else ""
        assert f"STATED {stated} {count} Name=gpu{type_} File=/dev/nvidia0" in done.stdout, done.stdout
