"""On a simulated machine its own surroundings answer, never those of the host that it is simulated on."""

import json

import pytest

from gpucheck.host import LiveSource, Place
from gpucheck.host.simulated import surroundings
from gpucheck.model import Limits, LoaderLibrary
from tests.simulator.helpers import write

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


def test_faults_of_copies_and_training_are_handed_on(machine, tmp_path):
    machine(measurement=[{"fault": "p2p-slow", "pair": "0-1"}], training=[{"fault": "rank-hang", "rank": 1}])
    seen = surroundings(tmp_path)

    assert seen.measurement == ({"fault": "p2p-slow", "pair": "0-1"},)
    assert seen.training == ({"fault": "rank-hang", "rank": 1},)


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
