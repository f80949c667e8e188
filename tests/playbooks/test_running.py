"""What runs on a host: the driver's library as the loader finds it, options of the loaded module, services."""

import pytest

from tests.playbooks.modules import shared
from tests.playbooks.stubs import program

running = shared("running")
LINE = (
    'options nvidia NVreg_CoherentGPUMemoryMode=driver NVreg_RegistryDwords="PeerMappingOverride=1" '
    "NVreg_UsePageAttributeTable=0x1\n"
)
# As the driver prints it (nv_procfs_read_params of its source): unsigned, and one option under another name.
IN_FORCE = """ResmanDebugLevel: 4294967295
DeviceFileMode: 432
UsePageAttributeTable: 1
RmProfilingAdminOnly: 1
CoherentGPUMemoryMode: "driver"
RegistryDwords: "PeerMappingOverride=1"
"""
BLOCK = "Id={}.service\nLoadState=loaded\nActiveState={}\nUnitFileState=enabled\nNeedDaemonReload={}\n"
PLAN = {"services": [{"name": name, "enabled": True, "state": "started"} for name in ("a", "b")]}


@pytest.fixture
def place(tmp_path, tools):
    """A folder that the cache names the library in."""
    rows = ["2 libs found", f"\\tlibnvidia-ml.so.1 (libc6,x86-64) => {tmp_path}/lib/libnvidia-ml.so.1"]
    program(tools, "ldconfig", "\\n".join([*rows, "\\tlibnvidia-ml.so.1x (libc6,x86-64) => /etc/passwd", ""]))
    (tmp_path / "lib").mkdir()
    return tmp_path / "lib"


def test_a_link_to_a_library_that_went_is_a_lost_one(place):
    """What a downgrade leaves that was cut off before its end; seen in the lab."""
    library = place / "libnvidia-ml.so.580.95.05"
    library.touch()
    (place / running.LIBRARY).symlink_to("libnvidia-ml.so.580.178.04")
    assert running.library_lost(folders=())

    (place / running.LIBRARY).unlink()
    (place / running.LIBRARY).symlink_to(library.name)
    assert not running.library_lost(folders=())


def test_the_loaders_own_folders_need_no_cache(place, tmp_path):
    assert running.library_lost(folders=(str(tmp_path),))

    (tmp_path / running.LIBRARY).touch()
    assert not running.library_lost(folders=(str(tmp_path),))


def test_without_a_loader_to_ask_nothing_is_lost(tools):
    assert not running.library_lost(folders=())


def with_options(line: str) -> dict[str, list[dict[str, str]]]:
    other = {"path": "/etc/modprobe.d/gpucheck-nouveau.conf", "content": "blacklist nouveau\n"}
    return {"files": [other, {"path": running.OPTIONS_FILE, "content": line}]}


@pytest.fixture
def params(tmp_path):
    path = tmp_path / "params"
    path.write_text(IN_FORCE)
    return str(path)


def test_options_in_force_are_no_difference_however_they_are_written(params):
    assert running.not_in_force(with_options(LINE), params) == []


def test_an_option_that_waits_for_a_reboot_is_said_with_both_values(params):
    wanted = with_options("options nvidia NVreg_RestrictProfilingToAdminUsers=0\n")

    assert running.not_in_force(wanted, params) == [
        "the module option NVreg_RestrictProfilingToAdminUsers is 1, planned 0"
    ]


@pytest.mark.parametrize("option", ["RestrictProfilingToAdminUsers=1", "DeviceFileMode=0660", "ResmanDebugLevel=-1"])
def test_an_option_is_in_force_under_the_name_and_in_the_form_that_the_driver_prints(params, option):
    """Every host with the first one, which profilers need, failed after its driver had changed."""
    assert running.not_in_force(with_options(f"options nvidia NVreg_{option}\n"), params) == []


def test_an_option_that_the_driver_has_and_does_not_print_is_no_difference(params, tools):
    program(tools, "modinfo", "NVreg_EnableNonblockingOpen:int\\nNVreg_RmNvlinkBandwidth:charp\\n")

    assert running.not_in_force(with_options("options nvidia NVreg_RmNvlinkBandwidth=HALF\n"), params) == []
    assert running.not_in_force(with_options("options nvidia NVreg_RmNvlink=HALF\n"), params) == [
        "the loaded module has no option NVreg_RmNvlink"
    ]


def test_an_option_that_this_driver_does_not_have_is_named(params, tools):
    wanted = with_options("options nvidia NVreg_Unheard=0\n")

    assert running.not_in_force(wanted, params) == ["the loaded module has no option NVreg_Unheard"]


def test_without_options_or_without_a_loaded_module_nothing_is_said(params, tmp_path):
    assert running.not_in_force({"files": []}, params) == []
    assert running.not_in_force(with_options(LINE), str(tmp_path / "none")) == []


@pytest.fixture
def asked(monkeypatch):
    """What systemctl is asked; it answers with b failed, and with a drop-in of a that it has not read."""
    calls = []

    def command(argv):
        calls.append(argv)
        return BLOCK.format("a", "active", "yes") + "\n" + BLOCK.format("b", "failed", "no")

    monkeypatch.setattr(running, "command", command)
    return calls


def test_services_of_one_call_are_told_apart(asked):
    states = running.states(["a", "b"])

    assert {name: values["ActiveState"] for name, values in states.items()} == {"a": "active", "b": "failed"}
    assert running.differences(PLAN, states) == ["b is failed, planned started"]
    assert running.details(states) == {"reload": True}
    assert running.failed(states) == ["b"]
    assert len(asked) == 1


def test_a_systemd_that_cannot_be_asked_is_a_difference_with_its_words(monkeypatch):
    def command(argv):
        raise running.Unreadable("systemctl: exit 1: no bus")

    monkeypatch.setattr(running, "command", command)
    states = running.states(["a", "b"])

    assert running.differences(PLAN, states) == ["services cannot be read: systemctl: exit 1: no bus"]
    assert running.details(states) == {"reload": False}
    assert running.failed(states) == []


def test_a_plan_without_services_asks_nothing(asked):
    assert running.states([]) == {}
    assert asked == []


def test_a_reload_that_is_due_is_no_difference_by_itself(machine):
    """With systemd's own cgroups a reload can take the GPUs from containers: not on a host that is as planned."""
    machine.services["nvidia-persistenced"]["NeedDaemonReload"] = "yes"

    answer = machine.compare()

    assert answer["differences"] == {}
    assert answer["host"]["services"]["reload"] is True
