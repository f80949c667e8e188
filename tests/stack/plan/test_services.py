"""Services stay quiet without an NVIDIA device, and a GPU host never loses one to the order of its boot."""

import configparser
import shlex
import subprocess

import pytest

from gpucheck.knowledge.tables import operating_systems
from gpucheck.stack import StackSpec
from gpucheck.stack.plan.parts import FOUND, PROBE, SIMULATED_ROOT, drop_ins
from tests.stack.asked import plan_of
from tests.stack.hosts import host

SYSTEMS = {system.id: system for system in operating_systems().systems}
OLD = [name for name, system in SYSTEMS.items() if system.family == "redhat" and int(system.version) <= 8]


def units(name, *services, simulated=False):
    """Path -> the unit as a parser reads it, keys as they are written."""
    found = {}
    for path, content in drop_ins(list(services), SYSTEMS[name], simulated=simulated):
        parser = configparser.ConfigParser(interpolation=None, strict=True)
        parser.optionxform = str
        parser.read_string(content)
        found[path] = parser
    return found


@pytest.fixture(params=["gpu", "other card", "empty bus", "no bus"])
def bus(request, tmp_path):
    """(whether there is an NVIDIA device, the root of its sysfs)."""
    cards = {"gpu": ["0x8086", "0x10de"], "other card": ["0x8086", "0x10de1"], "empty bus": [], "no bus": None}
    for index, vendor in enumerate(cards[request.param] or ()):
        folder = tmp_path / f"sys/bus/pci/devices/0000:0{index}:00.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
    if cards[request.param] == []:
        (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    return request.param == "gpu", tmp_path


def run(command, root):
    """The status of a unit's command line, split as systemd does, on a machine whose root is elsewhere."""
    here = command.replace("/sys/", f"{root}/sys/").replace("/run/", f"{root}/run/")
    return subprocess.run(shlex.split(here), check=False, capture_output=True).returncode


@pytest.mark.parametrize("name", sorted(set(SYSTEMS) - set(OLD)))
def test_service_condition_checks_the_hardware_not_the_driver(name):
    (path, unit), *more = units(name, "nvidia-persistenced").items()

    assert more == []
    assert path == "/etc/systemd/system/nvidia-persistenced.service.d/10-gpucheck.conf"
    assert not [key for key in unit["Unit"] if key.startswith(("Condition", "Assert"))]
    assert "/dev/" not in unit["Service"]["ExecCondition"]
    assert "/sys/module" not in unit["Service"]["ExecCondition"]


def test_the_condition_holds_with_an_nvidia_device_alone(bus):
    present, root = bus
    ((_, unit),) = units("ubuntu-22.04", "nvidia-persistenced").items()

    status = run(unit["Service"]["ExecCondition"], root)

    # 255 would be a failure of the unit.
    assert (status == 0) is present
    assert status < 255


@pytest.mark.parametrize("name", OLD)
def test_old_systemd_checks_the_hardware_in_a_separate_unit(name, bus):
    present, root = bus
    found = units(name, "nvidia-persistenced", "nvidia-fabricmanager")
    probe = found.pop(PROBE)
    command = probe["Service"]["ExecStart"]
    assert command.startswith("-")
    for unit in found.values():
        assert "ExecCondition" not in unit["Service"]
        assert unit["Unit"]["ConditionPathExists"] == FOUND
        # Both: wanted alone it would start beside it, ordered alone not at all.
        assert unit["Unit"]["Wants"] == "gpucheck-hardware.service"
        assert "gpucheck-hardware.service" in unit["Unit"]["After"].split()

    run(command[1:], root)

    assert len(found) == 2
    assert (root / FOUND.lstrip("/")).exists() is present


def test_simulated_hardware_is_looked_for_where_it_is():
    for name in ("rocky-9", "rocky-8"):
        text = "".join(content for _, content in drop_ins(["nvidia-imex"], SYSTEMS[name], simulated=True))
        assert f" {SIMULATED_ROOT}/sys/bus/pci/devices/*/vendor" in text


def test_a_daemon_that_comes_before_its_module_is_tried_again_and_not_for_ever():
    for name in ("ubuntu-24.04", "rocky-8"):
        unit = list(units(name, "nvidia-persistenced").values())[-1]
        attempts = int(unit["Unit"]["StartLimitBurst"])
        pause = int(unit["Service"]["RestartSec"].rstrip("s"))

        assert unit["Service"]["Restart"] == "on-failure"
        # A limit that the pauses alone outlast would never be reached.
        assert 60 <= attempts * pause < int(unit["Unit"]["StartLimitIntervalSec"])


def test_only_plan_of_a_simulated_host_names_the_simulator():
    hosts = [host("rocky-9", "t4-x1", "real"), host("rocky-9", "t4-x1", "made-up", simulated=True)]

    def simulated(**which):
        return any(SIMULATED_ROOT in file["content"] for file in plan_of(StackSpec(), hosts, **which).files)

    assert simulated(host="made-up")
    assert not simulated(host="real")
    assert not simulated(group="rocky-9-x86_64-1eb8x1")
