"""Device files with the real answers of the kernel: real nodes, real device cgroups, and no driver behind them."""

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from gpucheck.host import driver
from gpucheck.host.driver import read_device_files
from gpucheck.model import DeviceFile
from tests import device_cgroup

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make device nodes and cgroups")
READ = """
import json, sys
from pathlib import Path
from gpucheck.host.driver import read_device_files
dev, gpus = map(Path, sys.argv[1:3])
found = read_device_files(dev, gpus, listed=json.loads(sys.argv[3]), simulated=None, deadline_s=60)
print(json.dumps({file.name: file.error for file in found}))
"""


@pytest.fixture
def host(tmp_path):
    """/dev and /proc/driver/nvidia/gpus of a host with four GPUs. The number of a file is not the place on the bus."""
    dev, gpus = tmp_path / "dev", tmp_path / "gpus"
    dev.mkdir()
    for minor, bus in ((0, "4c"), (1, "19"), (2, "5d"), (3, "3b")):
        folder = gpus / f"0000:{bus}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t NVIDIA H100 80GB HBM3\nDevice Minor: \t {minor}\n")
    return dev, gpus


def found(host, listed=None, simulated=None):
    dev, gpus = host
    return read_device_files(dev, gpus, listed=listed, simulated=simulated, deadline_s=60)


def errors(files):
    return {file.name: file.error for file in files}


def test_without_a_driver_there_is_no_file(tmp_path):
    assert found((tmp_path / "dev", tmp_path / "gpus")) == ()


@root
def test_gpus_are_named_by_their_device_minor(host):
    device_cgroup.nodes(host[0])
    bus_ids = {file.name: file.bus_id for file in found(host)}

    assert bus_ids == {
        "nvidia0": "0000:4c:00.0",
        "nvidia1": "0000:19:00.0",
        "nvidia2": "0000:5d:00.0",
        "nvidia3": "0000:3b:00.0",
        "nvidiactl": None,
    }


@root
@pytest.mark.parametrize("version", [1, 2])
def test_a_real_device_cgroup_hides_and_the_rest_is_opened(host, version):
    """NVML lists the GPU of nvidia1 only: nvidia2 and nvidia3 are hidden, and nvidia0 has no driver behind it."""
    if not device_cgroup.available(version):
        pytest.skip(f"no device cgroup of version {version} can be made here")
    device_cgroup.nodes(host[0])
    command = [sys.executable, "-c", READ, *map(str, host), '["0000:19:00.0"]']
    done = device_cgroup.run(version, (2, 3), command)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "nvidia0": "ENXIO",
        "nvidia1": None,
        "nvidia2": "EPERM",
        "nvidia3": "EPERM",
        "nvidiactl": None,
    }
    whole = device_cgroup.run(version, (255,), command)
    assert json.loads(whole.stdout)["nvidiactl"] == "EPERM"


@root
def test_what_nvml_lists_is_not_opened(host):
    """Nothing is opened either where NVML could not be used: it may hang."""
    device_cgroup.nodes(host[0])

    assert set(errors(found(host)).values()) == {None}
    assert set(errors(found(host, ["0000:4c:00.0", "0000:19:00.0", "0000:5d:00.0", "0000:3b:00.0"])).values()) == {None}


@root
def test_a_file_without_a_gpu_is_opened_if_nvml_lists_fewer(host):
    """The file of a GPU that fell off the bus remains; the driver has forgotten the GPU."""
    device_cgroup.nodes(host[0], count=5)
    listed = ["0000:4c:00.0", "0000:19:00.0", "0000:5d:00.0", "0000:3b:00.0"]

    assert DeviceFile(name="nvidia4", error="ENXIO") in found(host, listed)


def test_the_mode_of_a_file_is_not_a_cgroup(host):
    """As another user than the owner sees it; root may read every file."""
    (host[0] / "nvidia0").write_bytes(b"")
    (host[0] / "nvidia0").chmod(0)
    answer = errors(found(host))

    assert answer["nvidia0"] == (None if os.geteuid() == 0 else "EACCES")
    assert answer["nvidia1"] == "ENOENT"


@root
def test_another_user_without_permission():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        device_cgroup.nodes(folder)
        (folder / "nvidia0").chmod(0o600)
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            answer = errors(found((folder, folder)))
            os._exit((answer["nvidia0"], answer["nvidia1"]) != ("EACCES", None))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_open_that_does_not_return_is_an_answer(host, monkeypatch):
    monkeypatch.setattr(driver, "OPEN", "import time; time.sleep(600)")
    for minor in range(4):
        (host[0] / f"nvidia{minor}").write_bytes(b"")
    dev, gpus = host
    listed = ["0000:19:00.0", "0000:5d:00.0", "0000:3b:00.0"]
    files = read_device_files(dev, gpus, listed=listed, simulated=None, deadline_s=0.1)

    assert errors(files)["nvidia0"] == "ETIMEDOUT"


def test_a_simulated_driver_has_errors_of_its_own(host):
    for minor in range(4):
        (host[0] / f"nvidia{minor}").write_bytes(b"")

    assert errors(found(host, [], {"nvidia2": "EPERM"})) == {
        "nvidia0": None,
        "nvidia1": None,
        "nvidia2": "EPERM",
        "nvidia3": None,
        "nvidiactl": "ENOENT",
    }
