"""Options on a host: what of them differs, what forbids them, and what is stopped when they go."""

import copy

from tests.playbooks.modules import module, shared
from tests.playbooks.planned import RUNNING

options = shared("options")
NAME, VERSION = "datacenter-gpu-manager-4-core", "1:4.6.0-1"
DCGM = {
    "packages": [{"name": NAME, "version": VERSION, "spec": f"{NAME}={VERSION}"}],
    "holds": [NAME],
    "services": [{"name": "nvidia-dcgm", "enabled": True, "state": "started"}],
    "refuse": ["datacenter-gpu-manager"],
}


def with_dcgm(machine):
    """The machine with DCGM planned, installed and running."""
    machine.plan["components"]["dcgm"] = copy.deepcopy(DCGM)
    machine.extras["packages"][NAME] = VERSION
    machine.facts["holds"].append(NAME)
    machine.services["nvidia-dcgm"] = dict(RUNNING)
    return machine


def test_package_hold_and_service_are_the_options_own_and_not_the_drivers(machine):
    """So that a host whose programs use the GPUs is not refused for them."""
    with_dcgm(machine)
    del machine.extras["packages"][NAME]
    machine.facts["holds"].remove(NAME)
    machine.services["nvidia-dcgm"].update(ActiveState="failed", UnitFileState="disabled")

    differences = machine.differences()
    # The recorded plan is the one without it.
    assert set(differences) == {"dcgm", "gpucheck"}
    assert differences["dcgm"] == [
        f"{NAME} {VERSION} is not installed",
        f"{NAME} is not held",
        "nvidia-dcgm is failed, planned started",
        "nvidia-dcgm is not enabled",
    ]


def test_the_generation_before_is_refused_and_nothing_else(machine):
    with_dcgm(machine)
    assert machine.compare()["host"]["refusals"] == []

    machine.extras["packages"]["datacenter-gpu-manager"] = "1:3.3.9-1"

    (words,) = machine.compare()["host"]["refusals"]
    assert "datacenter-gpu-manager 1:3.3.9-1 of another generation is installed" in words
    assert "apt purge" in words
    assert "dcgm: none in stack.yml" in words
    del machine.plan["components"]["dcgm"]
    assert machine.compare()["host"]["refusals"] == []


def test_the_service_of_an_option_that_goes_is_stopped_first(machine, monkeypatch):
    """Only while its unit is there: a run that was cut off after the removal has nothing to stop."""
    record = module("install_record")
    recorded = with_dcgm(machine).plan
    now = copy.deepcopy(recorded)
    del now["components"]["dcgm"]
    monkeypatch.setattr(record.host_plan, "recorded_plan", lambda: recorded)
    monkeypatch.setattr(record.record, "leftovers", lambda *_: [NAME])
    monkeypatch.setattr(record, "our_keys", lambda *_: set())

    assert record.leftovers(now, [NAME], machine.extras)["services"] == ["nvidia-dcgm"]
    assert record.leftovers(recorded, [NAME], machine.extras)["services"] == []
    machine.services["nvidia-dcgm"]["LoadState"] = "not-found"
    assert record.leftovers(now, [NAME], machine.extras)["services"] == []


def test_a_file_of_an_option_is_shown_recorded_and_taken_back(machine):
    """Like the plan's own files; but it is the option's, so that the driver is left alone."""
    path = machine.folder / "acs.service"
    row = {"path": str(path), "content": "acs\n", "mode": "0644"}
    machine.plan["components"]["acs"] = {"packages": [], "holds": [], "files": [row]}

    answer = machine.compare()

    assert answer["differences"]["acs"] == [f"{path} is missing or different"]
    assert "driver" not in answer["differences"]
    compare = shared("compare")
    assert [change["after_header"] for change in compare.changes(machine.plan, answer)] == [str(path)]
    assert str(path) in shared("record").planned_paths(machine.plan)
    path.write_text("acs\n")
    path.chmod(0o644)
    assert "acs" not in machine.differences()
