"""The plugin that ends a controller at each step: it ends it where it says, and a named step in its middle."""

import subprocess
import sys

import pytest
import yaml

from tests.lab.own_lab import ENVIRONMENT
from tests.playbooks.modules import PLAYBOOKS
from tests.playbooks.task_walk import changing_steps
from tests.playbooks.test_runs import BIN

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("named", "first"), [((), ["quick"]), (("quick", "slow", "skipped"), ["quick", "slow"])])
def test_each_step_is_cut_once(tmp_path, named, first):
    slow = {"name": "slow", "ansible.builtin.command": f"sh -c 'sleep 8; touch {tmp_path}/done'", "changed_when": False}
    quick = {"name": "quick", "ansible.builtin.command": f"touch {tmp_path}/quick", "changed_when": True}
    skipped = {"name": "skipped", "ansible.builtin.command": "false", "when": False}
    play = {"name": "Change the hosts", "hosts": "localhost", "gather_facts": False, "tasks": [skipped, quick, slow]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    (tmp_path / "changing").write_text("\n".join(named))
    around = {
        **ENVIRONMENT,
        "ANSIBLE_CALLBACK_PLUGINS": "tests/lab/plugins",
        "ANSIBLE_CALLBACKS_ENABLED": "cut",
        "GPUCHECK_TEST_STEPS": str(tmp_path / "steps"),
        **({"GPUCHECK_TEST_CHANGING": str(tmp_path / "changing")} if named else {}),
    }
    python = f"ansible_python_interpreter={sys.executable}"
    words = [str(BIN / "ansible-playbook"), "-i", "localhost,", "-c", "local", "-e", python, str(tmp_path / "play.yml")]

    for cut in first:
        done = subprocess.run(words, cwd=PLAYBOOKS.parent, env=around, capture_output=True, text=True, check=False)
        assert done.returncode == -9, done.stdout + done.stderr
        assert (tmp_path / "steps").read_text().splitlines()[-1] == cut
        assert not (tmp_path / "done").exists()
    done = subprocess.run(words, cwd=PLAYBOOKS.parent, env=around, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "done").exists()
    assert (tmp_path / "steps").read_text().splitlines() == first


def test_the_list_of_steps_has_those_of_every_role_that_changes_a_host():
    steps = changing_steps()

    roles = {step.partition(" : ")[0] for step in steps if " : " in step}
    assert {"cleanup", "deprovision", "driver", "gpucheck", "packages", "reboot", "repository"} <= roles
    assert "Record what is installed" in steps
    assert not [step for step in steps if "Fail if" in step or "Verify" in step]
