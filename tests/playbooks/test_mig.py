"""The MIG layout of a host is recorded before its driver changes, and is there again afterwards."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.playbooks.modules import ROLES
from tests.playbooks.stubs import script

SCRIPT = ROLES / "mig/files/mig.sh"
MODES = {"modes": ["Enabled", "Disabled"]}
# A GPU with one instance that is divided, one with whole ones, and one without a compute instance.
LAYOUT = [[0, "9", 2, 4, [["0", 0, 0], ["1", 1, 1]]], [0, "14", 5, 0, [["2", 0, 0]]], [0, "19", 9, 2, []]]
PARTED = """#!/bin/sh
echo "$*" >>"{folder}/parted"
case $1 in
  export) echo "mig-configs: {{current: []}}" ;;
  apply) [ -e "{folder}/broken" ] && exit 1; cp "{folder}/whole.json" "{folder}/mig.json" ;;
  assert) cmp -s "{folder}/whole.json" "{folder}/mig.json" ;;
esac
"""


class Host:
    """A directory with nvidia-smi, the layout of its GPUs, and the file in which it is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kept, self.full = folder, folder / "mig", ""
        smi = folder / "nvidia-smi"
        shutil.copy(Path(__file__).with_name("mig_smi.py"), smi)
        smi.chmod(0o755)

    def is_now(self, instances, **modes):
        (self.folder / "mig.json").write_text(json.dumps({**MODES, **modes, "instances": instances}))

    def reboots(self):
        (self.folder / "mig.json").unlink(missing_ok=True)

    def run(self, action):
        environment = {"PATH": f"{self.folder}:{os.environ['PATH']}", "MIG_STATE": str(self.folder / "mig.json")}
        environment |= {"MIG_FULL": self.full}
        words = ["sh", str(SCRIPT), action, str(self.kept)]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.returncode, done.stdout.strip()

    def layout(self):
        """Modes, and the instances without the IDs that the driver chooses."""
        found = json.loads((self.folder / "mig.json").read_text())
        rows = [[gpu, kind, start, [part[0] for part in parts]] for gpu, kind, _, start, parts in found["instances"]]
        return found["modes"], sorted(rows)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_instances_and_mode_are_back_after_the_driver_forgot_them(host):
    host.is_now(LAYOUT)
    before = host.layout()

    assert host.run("record") == (0, "recorded: GPUs in MIG mode: 1, instances: 3")
    host.reboots()
    assert host.run("restore") == (0, "restored")
    assert host.layout() == before
    assert sorted(path.name for path in host.folder.iterdir()) == ["mig.json", "nvidia-smi"]
    assert host.run("restore") == (0, "")


def test_what_a_service_restored_at_the_boot_stays_and_only_the_rest_is_created(host):
    """A100 keeps the mode; nvidia-mig-manager may have been there before."""
    host.is_now(LAYOUT)
    before = host.layout()
    host.run("record")
    host.is_now([[0, "14", 1, 0, []]])

    assert host.run("restore") == (0, "restored")
    assert host.layout() == before


def test_a_host_without_mig_or_without_a_driver_has_nothing_to_record(host):
    host.is_now([], modes=["Disabled", "Disabled"])
    assert host.run("record") == host.run("restore") == (0, "")
    (host.folder / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    assert host.run("record") == host.run("restore") == (0, "")
    assert not host.kept.exists()


def test_a_run_after_an_interrupted_one_keeps_what_that_one_recorded(host):
    host.is_now(LAYOUT)
    before = host.layout()
    host.run("record")
    host.reboots()

    assert host.run("record") == (0, "")
    host.run("restore")
    assert host.layout() == before


def test_what_is_left_of_a_layout_does_not_replace_what_an_interrupted_run_recorded(host):
    """A100 keeps the mode over a reboot, without any instance: the next run recorded that, and restored nothing."""
    host.is_now(LAYOUT)
    before = host.layout()
    host.run("record")
    host.is_now([])

    assert host.run("record") == (0, "")
    assert host.run("restore") == (0, "restored")
    assert host.layout() == before

    # A whole layout is recorded anew.
    host.run("record")
    assert host.run("record") == (0, "recorded: GPUs in MIG mode: 1, instances: 3")


def test_what_cannot_be_restored_is_named_and_stays_recorded(host):
    host.is_now(LAYOUT)
    host.run("record")
    host.reboots()
    host.full = "9"

    status, said = host.run("restore")

    assert status == 1
    assert said.startswith("GPU 0: 3g.40gb (profile 9) at 4:4, compute profiles 0,1. nvidia-smi: ")
    assert "Insufficient Resources" in said
    assert host.kept.exists()


def test_nvidia_mig_parted_restores_where_it_is_installed_and_nvidia_smi_where_it_cannot(host):
    script(host.folder / "nvidia-mig-parted", PARTED.format(folder=host.folder))
    host.is_now(LAYOUT)
    shutil.copy(host.folder / "mig.json", host.folder / "whole.json")
    before = host.layout()
    host.run("record")
    host.reboots()
    assert host.run("restore") == (0, "restored by nvidia-mig-parted")
    assert host.layout() == before
    called = (host.folder / "parted").read_text().split("\n")
    assert called[1] == f"apply -f {host.kept}.yaml -c current"

    host.run("record")
    host.reboots()
    (host.folder / "broken").touch()
    assert host.run("restore") == (0, "restored")
    assert host.layout() == before
