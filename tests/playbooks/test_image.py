"""An image: nothing of its plan runs yet. Its own kernel counts, services are enabled, and no program is started."""

import subprocess

import pytest

from tests.playbooks.modules import PLAYBOOKS, answer_of, module, programs, shared
from tests.playbooks.stubs import script

host, plan_code, running = shared("host"), shared("host_plan"), shared("running")
OFFLINE = {"LoadState": "loaded", "ActiveState": "inactive", "UnitFileState": "enabled"}


@pytest.mark.parametrize(
    ("hardware", "gpu"), [("h100-sxm5-x8", "8xh100-sxm5"), ("h100-pcie", "h100-pcie"), ("rtx-4090-x2", "2xrtx-4090")]
)
def test_make_names_the_hardware_as_the_playbook_does(tmp_path, hardware, gpu):
    """Without a number it is one GPU. make image-plan asked for h100-pciexh100-pcie, where make image goes on."""
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin/gpucheck", '#!/bin/sh\necho "$*"\n')
    script(tmp_path / "bin/python", "")
    (tmp_path / ".provision").touch()
    words = ["make", "-s", f"VENV={tmp_path}", "image-plan", f"HARDWARE={hardware}", "OS=ubuntu-22.04"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=PLAYBOOKS.parent)

    assert done.stdout == f"stack plan --gpu {gpu} --os ubuntu-22.04 --spec stack.yml\n", done.stderr


@pytest.fixture(autouse=True)
def image(monkeypatch):
    monkeypatch.setenv("GPUCHECK_IMAGE", "yes")


def test_what_only_a_boot_can_do_is_no_difference(machine):
    machine.facts["driver"].update(loaded_version=None, loaded_flavour=None)
    machine.services["nvidia-persistenced"] = OFFLINE
    machine.extras["modules"] = []
    plan_code_note = machine.folder / "reboot-required"
    plan_code_note.write_text("module files changed")

    found = machine.compare()

    assert (found["differences"], found["reboot"]) == ({}, [])


def test_what_the_first_boot_would_lack_is_one(machine):
    machine.facts["driver"].update(loaded_version=None, installed_version="570.1")
    machine.services["nvidia-persistenced"] = {**OFFLINE, "UnitFileState": "disabled"}

    assert machine.differences()["driver"] == [
        "the loaded module is 570.1 proprietary, planned 580.178.04 proprietary",
        "nvidia-persistenced is not enabled",
    ]


def test_modules_are_for_the_newest_kernel_of_the_image(monkeypatch, machine):
    monkeypatch.setattr(host.safety, "kernels", lambda: ["5.15.0-99-generic", "5.15.0-179-generic"])
    assert host.kernel_of("/") == "5.15.0-179-generic"
    assert plan_code.build_again(machine.plan, "5.15.0-179-generic")[:2] == ["dkms", "autoinstall"]

    monkeypatch.setattr(host.safety, "kernels", list)
    with pytest.raises(host.Unreadable, match="no kernel is installed in this image"):
        host.kernel_of("/")


def test_services_are_enabled_and_nothing_is_loaded_or_started(monkeypatch):
    task, calls = module("driver_in_force"), []
    programs(monkeypatch, lambda argv, **_: calls.append(argv) or (0, "", ""))
    monkeypatch.setattr(
        running, "states", lambda names: {name: {**OFFLINE, "UnitFileState": "disabled"} for name in names}
    )
    monkeypatch.setattr(task, "compare", lambda *_: {"differences": {}})
    services = [{"name": "nv", "enabled": True, "state": "started"}]

    answer_of(task, {"host": "image", "plan": {}, "modules": ["nvidia"], "services": services, "reload": True})

    assert calls == [["systemctl", "enable", "nv"]]


def test_units_are_asked_for_without_a_running_systemd(tools):
    script(tools / "systemctl", "#!/bin/sh\n[ $2 = nv.service ] && echo static || { echo no such unit >&2; exit 1; }\n")

    assert running.states(["nv", "gone"]) == {
        "nv": {**OFFLINE, "UnitFileState": "static"},
        "gone": {"UnitFileState": "", "LoadState": "not-found", "ActiveState": "inactive"},
    }
