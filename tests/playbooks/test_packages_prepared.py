"""What fails before the host is drained: a transaction that removes foreign packages, and a download."""

import json

import pytest

from tests.playbooks.hostile import Site, report, state
from tests.playbooks.package_manager import (
    go,
    missing,
    package_machine,  # noqa: F401 - a fixture
)
from tests.playbooks.stubs import script


@pytest.mark.parametrize(
    ("manager", "table"), [("apt", "Remv git [1]\n"), ("dnf", "Removing:\n git x86_64 1 @b 1 k\n")]
)
def test_installation_that_removes_foreign_packages_is_refused(machine, manager, table):
    missing(machine)
    machine.moves = table
    result = go(manager, machine)

    assert "would also remove git 1. These packages are not NVIDIA's" in result["msg"]
    assert not any(" install " in call for call in machine.calls)
    assert go(manager, machine, allow_changes=["git"])["failed"] is False
    assert any(" install " in call for call in machine.calls)


@pytest.mark.parametrize("manager", ["apt", "dnf"])
def test_preparation_simulates_and_downloads_and_moves_nothing(machine, manager, tmp_path):
    missing(machine)
    machine.state["host"]["unplanned"] = {"installed": ["old"], "held": ["old"]}
    machine.state["components"]["driver"]["stale"] = ["driver-1-1.*"] if manager == "dnf" else []
    machine.lock_file.write_text("driver-1-1.*\n")
    machine.moves = "Remv cuda-old [1]\n" if manager == "apt" else "Removing:\n cuda-old x86_64 1 @b 1 k\n"
    row = {"path": str(tmp_path / "a/b.conf"), "content": "x\n"}
    result = go(manager, machine, state="prepared", files=[row])

    assert (result["changed"], result["failed"], result["moves"]) == (False, False, ["remove cuda-old 1"])
    assert (result["moves_refused"], result["moves_unknown"]) == ("", "")
    assert machine.calls == []
    assert [argv[-3:] for argv in machine.simulated] == [["driver=2-1", "toolkit=12-1", "newest"]]
    assert [argv[-3:] for argv in machine.fetched] == [["driver=2-1", "toolkit=12-1", "newest"]]
    assert machine.locks() == ["driver-1-1.*"]
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("manager", ["apt", "dnf"])
def test_download_that_fails_fails_in_the_preparation(machine, manager):
    missing(machine)
    machine.broken = "download"

    assert "404 Not Found" in go(manager, machine, state="prepared")["msg"]
    assert machine.calls == []


def test_preparation_that_fails_puts_the_module_stream_back(machine):
    missing(machine)
    machine.state["host"].update(module_stream="570-open", module_stream_planned=False)
    machine.broken = "download"
    go("dnf", machine, state="prepared")

    assert machine.calls[-2:] == ["dnf module reset nvidia-driver", "dnf module enable nvidia-driver:570-open"]


@pytest.mark.parametrize(
    ("manager", "table"),
    [
        ("apt", "Remv cuda-old [1]\nInst driver [1-1] (2-1 NVIDIA [amd64])\nInst extra (3 NVIDIA [amd64])\n"),
        (
            "dnf",
            "Upgrading:\n driver x86_64 2-1 cuda 5 k\nInstalling dependencies:\n extra x86_64 3 cuda 1 k\nRemoving:\n"
            " cuda-old x86_64 1 @b 1 k\n\nTotal download size: 6 k\n",
        ),
    ],
)
def test_preparation_in_check_mode_lists_the_entire_transaction_and_its_download(machine, manager, table):
    missing(machine)
    machine.moves, machine.sizes = table, "'http://x/driver.deb' driver.deb 6144 SHA256:0\n"
    machine.installed["driver"] = "1-1"
    result = go(manager, machine, state="prepared", check_mode=True)

    assert sorted((row["verb"], row["name"], row["before"], row["version"]) for row in result["transaction"]) == [
        ("install", "extra", "", "3"),
        ("remove", "cuda-old", "1", ""),
        ("upgrade", "driver", "1-1", "2-1"),
    ]
    assert result["download_bytes"] == 6144


@pytest.mark.parametrize("manager", ["apt", "dnf"])
def test_preparation_in_check_mode_reports_and_downloads_nothing(machine, manager):
    missing(machine)
    machine.moves = "Remv git [1]\n" if manager == "apt" else "Removing:\n git x86_64 1 @b 1 k\n"
    result = go(manager, machine, state="prepared", check_mode=True)

    assert (result["failed"], result["moves"]) == (False, ["remove git 1"])
    assert "allow it by name with packages_allow_changes: [git]" in result["moves_refused"]
    assert (machine.calls, machine.fetched) == ([], [])
    assert go(manager, machine, state="prepared", check_mode=True, allow_changes=["git"])["moves_refused"] == ""


def test_preparation_in_check_mode_states_what_is_unknown(machine):
    missing(machine)
    machine.state["host"]["unfinished"] = ["x"]
    said = go("apt", machine, state="prepared", check_mode=True)["moves_unknown"]
    assert said == "a run first finishes an interrupted transaction: x"
    machine.state["host"]["unfinished"] = ["driver"]
    assert go("apt", machine, state="prepared", check_mode=True)["moves_unknown"] == ""

    machine.state["host"].update(unfinished=[], module_stream_planned=False)
    assert "stream" in go("dnf", machine, state="prepared", check_mode=True)["moves_unknown"]


def test_preparation_reads_what_was_cut_off_after_dpkg_wrote_its_journal(machine):
    """apt reads the database alone: before, a transaction looks possible that is not."""
    missing(machine)
    machine.state["host"]["unfinished"], machine.moves = ["cuda-old"], "Remv cuda-old [1]\n"

    def written(_):
        machine.moves = "" if "dpkg -a" in machine.calls else machine.moves

    machine.watch = written
    said = go("apt", machine, state="prepared")

    assert said["moves_unknown"] == "a run first finishes an interrupted transaction: cuda-old"
    assert machine.fetched == []


@pytest.mark.slow
def test_sources_simulation_and_downloads_come_before_the_drain(tmp_path):
    """The drain looks at the host's processes before anything is installed."""
    different = state({"nccl": ["libnccl2 is missing"], "kernel_arguments": ["iommu=pt is missing"]})
    different["components"]["nccl"] = {"packages": ["libnccl2 is missing"], "missing": [], "stale": []}
    site = Site(tmp_path, report("node01"))
    booted = {**different, "differences": {"nccl": ["libnccl2 is missing"]}}  # once its boot entries were written
    # The controller's half of copy asks for stat.
    absent = {"changed": False, "stat": {"exists": False}}
    site.host("node01", plan_state=[different, different, different, booted], stat=absent)
    program = script(tmp_path / "drain", "#!/bin/sh\ncat $(dirname $0)/hosts/*/asked >$(dirname $0)/before-$1\n")
    site.run("provision.yml", "-e", json.dumps({"drain_with": "script", "drain_command": [program]}))
    before = (tmp_path / "before-drain").read_text().split()
    after = site.asked("node01")[len(before) :]

    assert before[-4:] == ["install_record", "package_sources", "planned_packages", "host_lock"]
    assert after.index("plan_state") < after.index("planned_packages")
