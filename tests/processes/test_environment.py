"""What children find in their environment: seen by a real child, with what a shell or a job may have left there."""

import json
import os
import sys
from functools import partial

import pytest
from msgspec.structs import replace

from gpucheck.measure.running.runner import Supervised
from gpucheck.measure.values import Opened
from gpucheck.processes.environment import copying_environment, nccl_files, rank_environment
from tests.measure.benches import TWO_PCIE

LEFT = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync",
    "CUDA_DISABLE_PEER_ACCESS": "1",
    "CUDA_DISABLE_PTX_JIT": "1",
    "CUDA_FORCE_PTX_JIT": "1",
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "CUDA_DEVICE_ORDER": "FASTEST_FIRST",
}
# Answers the setup with its own environment, as the notes of what it could set up.
SHOW = """
import json, os, sys
sys.stdin.readline()
answer = {"type": "opened", "buffer_bytes": 1, "methods": [], "clock": "none", "versions": dict(os.environ)}
os.write(int(sys.argv[1]), json.dumps(answer).encode() + b"\\n")
"""


def test_the_copying_child_gets_a_clean_environment_and_what_was_removed_is_known(monkeypatch):
    for name, value in LEFT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    with Supervised(replace(TWO_PCIE.setup(), parent_pid=os.getpid()), 10.0, (sys.executable, "-c", SHOW)) as child:
        opened = child.open()

    assert isinstance(opened, Opened)
    found = opened.versions
    assert not found.keys() & (LEFT.keys() - {"CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_ORDER"})
    assert (found["CUDA_DEVICE_MAX_CONNECTIONS"], found["CUDA_DEVICE_ORDER"]) == ("32", "PCI_BUS_ID")
    assert found["CUDA_VISIBLE_DEVICES"] == "1,0", "which GPUs are shown is the user's own choice"
    assert child.removed == tuple(sorted(f"{k}={v}" for k, v in LEFT.items() if k != "CUDA_DEVICE_ORDER"))


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (copying_environment, "LD_PRELOAD"),
        *[
            (partial(rank_environment, interface="lo", several_hosts=False), name)
            for name in ("CUDA_DISABLE_PTX_JIT", "CUDA_FORCE_PTX_JIT", "CUDA_DISABLE_JIT", "CUDA_FORCE_JIT")
        ],
    ],
)
def test_children_get_no_preloaded_library_and_no_jit_setting_of_the_caller(made, name):
    kept, removed = made({name: "1", "PATH": "/bin"})

    assert name not in kept
    assert removed == (f"{name}=1",)


def test_a_file_of_the_user_does_not_decide_what_nccl_does_on_one_host():
    one, removed = rank_environment({"NCCL_CONF_FILE": "/home/u/nccl.conf"}, interface="lo", several_hosts=False)
    several, _ = rank_environment({}, interface="eth0", several_hosts=True)

    assert (one["NCCL_CONF_FILE"], removed) == ("/dev/null", ("NCCL_CONF_FILE=/home/u/nccl.conf",))
    assert "NCCL_CONF_FILE" not in several, "between hosts the file may name the site's network"


def test_between_hosts_the_site_chooses_the_network_and_nothing_else():
    caller = {"NCCL_SOCKET_IFNAME": "ib0", "NCCL_IB_HCA": "mlx5", "NCCL_P2P_DISABLE": "1", "PATH": "/bin"}
    several, removed = rank_environment(caller, interface="eth0", several_hosts=True)
    one, kept_back = rank_environment(caller, interface="lo", several_hosts=False)

    assert (several["NCCL_SOCKET_IFNAME"], several["GLOO_SOCKET_IFNAME"]) == ("ib0", "eth0")
    assert removed == ("NCCL_P2P_DISABLE=1",)
    assert one["NCCL_SOCKET_IFNAME"] == "lo"
    assert len(kept_back) == 3


def test_what_nccl_takes_from_files_anyway_is_reported(tmp_path):
    """NCCL reads /etc/nccl.conf after the file that NCCL_CONF_FILE names."""
    system, home = tmp_path / "nccl.conf", tmp_path / "home"
    home.mkdir()
    system.write_text("# NCCL_DEBUG=INFO\nNCCL_P2P_DISABLE=1\n\nno setting\n")
    (home / ".nccl.conf").write_text("NCCL_IB_HCA=mlx5")

    assert nccl_files(home, several_hosts=False, system=system) == (f"{system}: NCCL_P2P_DISABLE=1",)
    assert nccl_files(home, several_hosts=True, system=system)[0] == f"{home}/.nccl.conf: NCCL_IB_HCA=mlx5"
    assert nccl_files(home, several_hosts=False, system=tmp_path / "none") == ()


def test_a_file_of_nccl_that_cannot_be_read_is_reported(tmp_path):
    (line,) = nccl_files(tmp_path, several_hosts=False, system=tmp_path)

    assert "cannot be read" in line


@pytest.mark.slow
def test_a_measurement_reports_what_it_removed(monkeypatch):
    from click.testing import CliRunner

    from gpucheck.cli.bandwidth import COMMAND

    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    done = CliRunner().invoke(COMMAND, ["--devices", "cpu,cpu", "--level", "quick", "--format", "json"])

    assert json.loads(done.stdout)["notes"] == [
        "environment variable removed for the measurement: CUDA_LAUNCH_BLOCKING=1"
    ]
