"""The stack commands that look at a host: resolve without --gpu or --os, and check."""

import json

import msgspec
import pytest

from gpucheck.checks.software._wheels import Imported
from gpucheck.cli.stack import common
from gpucheck.model import DriverState, PackageVersion, PciDevice, Simulation
from gpucheck.run import plan as stack_run
from gpucheck.stack import StackSpec
from gpucheck.stack.facts import SCHEMA, facts_of
from gpucheck.stack.lock import lock, write_lock
from tests.fakes import facts
from tests.machines import LOADED, h100, nvswitches, on_bus, p100
from tests.stack.cli_words import run
from tests.stack.hosts import host

P100S = facts(pci=on_bus(p100(0), p100(1)), driver=LOADED)


@pytest.fixture
def here(monkeypatch):
    """Set which host the commands look at."""

    def be(fake):
        monkeypatch.setattr(common, "this_host", lambda *_: fake)
        return fake

    return be


def test_facts_come_from_any_host_door():
    """GPUs and switches from the PCI bus; an audio function of a card is no GPU."""
    audio = PciDevice(bus_id="0000:03:00.1", vendor_id="10de", device_id="0fb0", class_id="040300")
    found = facts_of(
        facts(
            pci=(*on_bus(h100(0), h100(1)), audio, *nvswitches(4)),
            driver=DriverState(loaded_version="580.178.04", loaded_flavour="open", nouveau_loaded=True),
            simulation=Simulation(profile="hgx-h100-x8", stand_ins=("kernel",)),
        )
    )

    assert (found.schema_, found.host, found.arch, found.os.id) == (SCHEMA, "node07", "x86_64", "ubuntu")
    assert [gpu.device_id for gpu in found.gpus] == ["2330", "2330"]
    assert (found.nvswitches, found.nouveau_loaded, found.driver.loaded_flavour) == (4, True, "open")
    assert (found.simulated, found.stand_ins) == (True, ("kernel",))


def test_resolve_looks_at_this_host_for_what_is_left_open(here):
    here(P100S)
    both = run("resolve", "--format", "json")
    named = run("resolve", "--gpu", "2xP100 PCIe", "--os", "ubuntu-22.04", "--format", "json")

    assert json.loads(both.stdout) == json.loads(named.stdout)
    assert json.loads(run("resolve", "--os", "rocky-9", "--format", "json").stdout)["os"] == "rocky-9"
    assert json.loads(run("resolve", "--gpu", "T4", "--format", "json").stdout)["os"] == "ubuntu-22.04"


def test_simulated_result_is_marked_in_both_formats(here):
    here(facts(pci=on_bus(p100(0)), simulation=Simulation(profile="p100-pcie-x2")))

    assert run("resolve").stdout.startswith("SIMULATED hardware: p100-pcie-x2\n")
    assert json.loads(run("resolve", "--format", "json").stdout)["simulated"] is True


@pytest.mark.parametrize(
    ("pci", "says"),
    [((), "no NVIDIA GPU on the PCI bus"), (on_bus(msgspec.structs.replace(p100(0), device_id="2cff")), "10de:2cff")],
)
def test_a_host_that_cannot_be_resolved_for_is_unknown(here, pci, says):
    here(facts(pci=pci))
    result = run("resolve")

    assert (result.exit_code, result.stdout) == (3, "")
    assert says in result.stderr


def test_a_simulated_machine_is_resolved_for(activate):
    activate("hgx-h100-x8")  # in the cache of the test run
    done = run("resolve", "--simulate", "hgx-h100-x8", "--os", "ubuntu-24.04", "--format", "json")
    answer = json.loads(done.stdout)

    assert (answer["simulated"], answer["driver"]["kernel_module"], len(answer["gpus"])) == (True, "open", 8)
    assert answer["fabric_manager"] == answer["driver"]["version"]


@pytest.fixture
def locked(tmp_path):
    """A lock for node07, the host of the fakes."""
    path = tmp_path / "stack.lock.yml"
    path.write_text(write_lock(lock(StackSpec(), [host("ubuntu-22.04", "p100-pcie-x2", "node07")])))
    return path


def as_planned(path, name="node07"):
    """The packages of a host that is exactly as locked."""
    plan = json.loads(run("plan", "--lock", path, "--host", name, "--format", "json").stdout)
    rows = [package for component in plan["components"].values() for package in component["packages"]]
    return tuple(PackageVersion(name=row["name"], version=row["version"], held=True) for row in rows)


def test_check_passes_a_host_that_is_as_locked(here, locked):
    python = {"torch": "2.7.1", "nvidia-cudnn-cu12": "9.5.1.17", "nvidia-nccl-cu12": "2.26.2"}
    here(facts(pci=P100S.pci, driver=LOADED, packages=as_planned(locked), python=python))

    result = run("check", "--lock", locked, "--format", "json")
    report = json.loads(result.stdout)

    assert (result.exit_code, report["verdict"], report["schema"]) == (0, "pass", "gpucheck.report/1")
    assert report["counts"]["pass"] >= 8


def test_check_fails_a_host_that_moved(here, locked):
    moved = tuple(
        msgspec.structs.replace(p, version="2.32.3-1+cuda13.4") if p.name == "libnccl2" else p
        for p in as_planned(locked)
    )
    here(facts(pci=P100S.pci, driver=LOADED, packages=moved))
    for form, head in (("text", ""), ("markdown", "## FAIL: gpucheck stack check"), ("html", "<!doctype html>")):
        result = run("check", "--lock", locked, "--format", form)

        assert result.exit_code == 2
        assert result.stdout.startswith(head)
        assert "2.32.3-1+cuda13.4" in result.stdout
        assert "2.29.3-1+cuda12.9" in result.stdout


def test_a_page_is_written_of_what_was_compared_only(here, locked, tmp_path):
    here(facts(pci=P100S.pci, driver=LOADED))
    page = tmp_path / "page.html"
    locked.write_text(locked.read_text().replace("cuda: 12.9.1", "cuda: 13.0.2"))
    refused = run("check", "--lock", locked, "--format", "html", "-o", page)

    assert (refused.exit_code, "CONFLICT  CUDA 13.0.2" in refused.stdout, page.exists()) == (2, True, False)


def test_check_reads_the_hosts_own_record(here, locked):
    plan = run("plan", "--lock", locked, "--host", "node07", "--format", "json").stdout
    recorded = facts(driver=LOADED, packages=as_planned(locked), files={"/etc/gpucheck/stack.json": plan})

    here(recorded)
    with_record = run("check")
    here(facts())
    without = run("check")

    assert (with_record.exit_code, without.exit_code) == (0, 3)
    assert "was not provisioned from a lock" in without.stdout


def test_a_lock_edited_to_something_incompatible_names_its_group(here, locked):
    text = locked.read_text().replace("cuda: 12.9.1", "cuda: 13.0.2")
    locked.write_text(text)
    here(facts())

    for result in (run("plan", "--lock", locked, "--host", "node07"), run("check", "--lock", locked)):
        assert result.exit_code == 2
        assert result.stdout.startswith(f"{locked}: ubuntu-22.04-x86_64-15f8x2: CONFLICT  CUDA 13.0.2")


def test_check_imports_torch_if_requested(here, monkeypatch):
    said = Imported(
        version="2.14.1", cuda="13.0", arch_list=("sm_75",), folder="/site", mapped=("/site/nvidia/libcudart.so.13",)
    )
    monkeypatch.setattr(stack_run, "query_torch", lambda: said)
    here(facts(pci=P100S.pci, driver=LOADED, python={"torch": "2.14.1"}))
    result = run("check", "--import-torch", "-v")

    assert result.exit_code == 2
    assert "torch 2.14.1: CUDA 13.0, cuDNN not reported" in result.stdout
    assert "torch 2.14.1 holds no code for this GPU" in result.stdout


FAKE_TORCH = """
class _C:
    _cuda_getArchFlags = staticmethod(lambda: "sm_60 sm_70 compute_70")
class cudnn:
    version = staticmethod(lambda: 91002)
class backends:
    cudnn = cudnn
class nccl:
    version = staticmethod(lambda: (2, 29, 3))
class cuda:
    nccl = nccl
class version:
    cuda = "12.6"
__version__ = "9.9.9"
"""


def test_torch_is_queried_below_its_own_gpu_check(tmp_path, monkeypatch):
    """Its public list is empty where no GPU is usable, which is where the answer is needed most."""
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = stack_run.query_torch()

    assert said.error is None
    assert (said.version, said.cuda, said.cudnn, said.nccl) == ("9.9.9", "12.6", "9.10.2", "2.29.3")
    assert said.arch_list == ("sm_60", "sm_70")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise ImportError('libcudnn.so.9: cannot open shared object file')", "cannot open shared object file"),
        ("import time; time.sleep(60)", "no response in 1 s"),
        ("import os; os._exit(7)", "exit status 7"),
    ],
)
def test_torch_import_failure_is_reported_within_the_deadline(tmp_path, monkeypatch, source, says):
    (tmp_path / "torch.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    # On a busy machine Python alone may take longer than a second to start.
    seconds = 1 if "sleep" in source else 60
    assert says in str(stack_run.query_torch(seconds=seconds).error)
    assert "no/such/python" in str(stack_run.query_torch(python="no/such/python").error)
