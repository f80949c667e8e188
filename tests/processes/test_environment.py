"""What children find in their environment: seen by a real child, with what a shell or a job may have left there."""

import json
import os
import shutil
import subprocess
import sys
from functools import partial

import pytest
from msgspec.structs import replace

from gpucheck.measure.running.runner import Supervised
from gpucheck.measure.values import Opened
from gpucheck.processes.capture import capture
from gpucheck.processes.child import Child
from gpucheck.processes.contention import LOOK_S, Waiting, ran_s, waited_s
from gpucheck.processes.environment import copying_environment, independent, nccl_files, python_module, rank_environment
from gpucheck.processes.group import Group
from gpucheck.processes.ranks.nodes import Nodes
from tests.measure.benches import TWO_PCIE
from tests.shared import END_S

TWO_HOSTS = Nodes(count=2, rank=0, host="node01", port=29500, interface="eth0")

LEFT = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync",
    "CUDA_DISABLE_PEER_ACCESS": "1",
    "CUDA_DISABLE_PTX_JIT": "1",
    "CUBLAS_EMULATE_SINGLE_PRECISION": "1",
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
            (partial(rank_environment, nodes=None), name)
            for name in ("CUDA_DISABLE_PTX_JIT", "CUDA_FORCE_PTX_JIT", "CUDA_DISABLE_JIT", "CUDA_FORCE_JIT")
        ],
    ],
)
def test_children_get_no_preloaded_library_and_no_jit_setting_of_the_caller(made, name):
    kept, removed = made({name: "1", "PATH": "/bin"})

    assert name not in kept
    assert removed == (f"{name}=1",)


def test_a_file_of_the_user_does_not_decide_what_nccl_does_on_one_host():
    one, removed = rank_environment({"NCCL_CONF_FILE": "/home/u/nccl.conf"}, None)
    several, _ = rank_environment({}, TWO_HOSTS)

    assert (one["NCCL_CONF_FILE"], removed) == ("/dev/null", ("NCCL_CONF_FILE=/home/u/nccl.conf",))
    assert "NCCL_CONF_FILE" not in several, "between hosts the file may name the site's network"


def test_between_hosts_the_site_chooses_the_network_and_nothing_else():
    caller = {"NCCL_SOCKET_IFNAME": "ib0", "NCCL_IB_HCA": "mlx5", "NCCL_P2P_DISABLE": "1", "PATH": "/bin"}
    several, removed = rank_environment(caller, TWO_HOSTS)
    one, kept_back = rank_environment(caller, None)

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

    assert nccl_files(home, None, system=system) == (f"{system}: NCCL_P2P_DISABLE=1",)
    assert nccl_files(home, TWO_HOSTS, system=system)[0] == f"{home}/.nccl.conf: NCCL_IB_HCA=mlx5"
    assert nccl_files(home, None, system=tmp_path / "none") == ()


def test_a_file_of_nccl_that_cannot_be_read_is_reported(tmp_path):
    (line,) = nccl_files(tmp_path, None, system=tmp_path)

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


CHECK = "import os, json, runpy; print(os.getcwd(), json.__file__)"


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """The working directory, in which every module that a child imports first has a namesake."""
    for name in ("json", "runpy", "msgspec", "gpucheck"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'a').write('{name} ')")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / "mark").exists()


def test_a_module_is_not_taken_from_the_working_directory(hostile):
    done = subprocess.run([*python_module("gpucheck"), "-V"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("gpucheck, version")


def test_the_package_is_found_where_it_is_not_installed(hostile):
    command = [sys.executable, "-I", "-S", *python_module("gpucheck.processes")[1:]]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr.endswith(
        "gpucheck.processes.__main__; 'gpucheck.processes' is a package and cannot be directly executed\n"
    )


def test_a_captured_program_is_not_either(hostile):
    done = capture([sys.executable, "-c", CHECK], 60.0)
    assert done.status == 0, done.stderr
    assert done.stdout.decode().split()[0] == "/"


def test_a_child_runs_elsewhere_and_a_named_folder_is_kept(hostile, tmp_path):
    child = Child(
        [sys.executable, "-c", "import os, sys; os.write(int(sys.argv[1]), os.getcwd().encode())"], os.environ
    )
    assert child.group.wait(END_S) == 0
    child.end()
    own = Group([sys.executable, "-c", "import os; raise SystemExit(os.getcwd() != '/usr')"], os.environ, folder="/usr")
    assert own.wait(END_S) == 0
    own.reap()


def test_relative_paths_of_the_caller_stay_the_callers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = independent({"PYTHONPATH": "lib::/opt/x:", "GPUCHECK_SIMULATOR": "machine", "HOME": "home"})
    assert made == {"PYTHONPATH": f"{tmp_path}/lib:/opt/x", "GPUCHECK_SIMULATOR": f"{tmp_path}/machine", "HOME": "home"}
    assert independent({"PATH": "/bin"}) == {"PATH": "/bin"}


def test_running_and_waiting_are_the_first_two_numbers_in_seconds(tmp_path):
    (tmp_path / "42").mkdir()
    (tmp_path / "42/schedstat").write_text("9000000000 1500000000 77\n")

    assert waited_s(42, tmp_path) == 1.5
    assert ran_s(42, tmp_path) == 9.0


@pytest.mark.parametrize("content", [None, "", "12", "a b c"])
def test_no_such_number_is_no_waiting(tmp_path, content):
    (tmp_path / "42").mkdir()
    if content is not None:
        (tmp_path / "42/schedstat").write_text(content)

    assert waited_s(42, tmp_path) == 0.0


def test_the_waiting_of_every_thread_counts_and_stays_when_it_ends(tmp_path):
    def at(**waited: float) -> None:
        shutil.rmtree(tmp_path / "42", ignore_errors=True)
        for task, seconds in waited.items():
            (tmp_path / "42/task" / task).mkdir(parents=True)
            (tmp_path / "42/task" / task / "schedstat").write_text(f"0 {seconds * 1e9:.0f} 1\n")

    waiting = Waiting([42, 43], tmp_path)
    found = []
    for number, state in enumerate([{"a": 5.0}, {"a": 6.0, "b": 2.0}, {"b": 2.5}, {}]):
        at(**state)
        found.append(waiting.look(100.0 + number * LOOK_S))

    assert found == [0.0, 3.0, 3.5, 3.5]
