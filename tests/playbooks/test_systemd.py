"""Services on a host: read in one call, judged against the plan, and what systemd has to be told."""

import pytest

from tests.playbooks.planned import running_code

BLOCK = "Id={}.service\nLoadState=loaded\nActiveState={}\nUnitFileState=enabled\nNeedDaemonReload={}\n"
PLAN = {"services": [{"name": name, "enabled": True, "state": "started"} for name in ("a", "b")]}


@pytest.fixture
def asked(monkeypatch):
    """What systemctl is asked; it answers with b failed, and with a drop-in of a that it has not read."""
    calls = []

    def command(argv):
        calls.append(argv)
        return BLOCK.format("a", "active", "yes") + "\n" + BLOCK.format("b", "failed", "no")

    monkeypatch.setattr(running_code, "command", command)
    return calls


def test_services_of_one_call_are_told_apart(asked):
    states = running_code.states(["a", "b"])

    assert {name: values["ActiveState"] for name, values in states.items()} == {"a": "active", "b": "failed"}
    assert running_code.differences(PLAN, states) == ["b is failed, planned started"]
    assert running_code.details(states) == {"reload": True}
    assert running_code.failed(states) == ["b"]
    assert len(asked) == 1


def test_a_systemd_that_cannot_be_asked_is_a_difference_with_its_words(monkeypatch):
    def command(argv):
        raise running_code.Unreadable("systemctl: exit 1: no bus")

    monkeypatch.setattr(running_code, "command", command)
    states = running_code.states(["a", "b"])

    assert running_code.differences(PLAN, states) == ["services cannot be read: systemctl: exit 1: no bus"]
    assert running_code.details(states) == {"reload": False}
    assert running_code.failed(states) == []


def test_a_plan_without_services_asks_nothing(asked):
    assert running_code.states([]) == {}
    assert asked == []


def test_a_reload_that_is_due_is_no_difference_by_itself(machine):
    """With systemd's own cgroups a reload can take the GPUs from containers: not on a host that is as planned."""
    machine.services["nvidia-persistenced"]["NeedDaemonReload"] = "yes"

    answer = machine.compare()

    assert answer["differences"] == {}
    assert answer["host"]["services"]["reload"] is True
