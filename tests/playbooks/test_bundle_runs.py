"""What Ansible makes of a bundle: refusals before anything changes, and no other source in the environment."""

import re
import shutil

import pytest
import yaml

from tests.playbooks.modules import PLAYBOOKS
from tests.playbooks.test_preflight import case, said
from tests.playbooks.test_runs import play
from tests.shared import sampled

pytestmark = pytest.mark.slow

LOCAL = {"hosts": "gpu", "connection": "local", "gather_facts": False}
GIB = 1 << 30


def shown(tmp_path, *plays, hosts=("n1",)):
    """The exit status and the output of these plays."""
    done = play(tmp_path, list(plays), hosts=hosts)
    return done.returncode, " ".join(done.stdout.split())


def test_preflight_refuses_a_host_without_room_or_headers_for_its_share(tmp_path):
    """No source is asked for headers: there is none."""
    lacking = case(packages=0, headers_missing=["linux-headers-6.1"])
    sound = {"headers": ["linux-headers-6.1"], "missing_bytes": 3 * GIB, "free_bytes": 4 * GIB}
    full = {"headers": [], "missing_bytes": 5 * GIB, "free_bytes": 4 * GIB}
    found = said(
        tmp_path, {name: {**lacking, "preflight_bundle": row} for name, row in (("sound", sound), ("full", full))}
    )

    assert found["sound"] == ""
    assert "5.0 GiB of the bundle must be copied to /var/lib/gpucheck, but only 4.0 GiB are free" in found["full"]
    assert "neither the host nor the bundle has linux-headers-6.1" in found["full"]


@pytest.mark.parametrize(
    ("manager", "name", "seen"),
    sampled(
        [
            ("apt", "gpucheck-bundle", "APT_CONFIG=/var/lib/gpucheck/bundle/apt.conf"),
            ("dnf", "gpucheck-bundle", "PATH=/var/lib/gpucheck/bundle/bin:"),
            ("apt", "nvidia-cuda", None),
            ("dnf", "nvidia-cuda", None),
        ],
        (1, 2),
    ),
)
def test_package_managers_are_led_to_the_bundle_and_only_where_it_is_the_source(tmp_path, manager, name, seen):
    """Every command of the rollout, also in files that it includes."""
    change = [{"name": "Look", "ansible.builtin.command": {"argv": ["env"]}, "register": "looked"}]
    change.append({"name": "Say", "ansible.builtin.debug": {"msg": "ENV {{ looked.stdout }} END"}})
    (tmp_path / "apply.yml").write_text(yaml.safe_dump(change))
    for name in ("prepare.yml", "quick.yml"):
        (tmp_path / name).write_text("[]\n")
    shutil.copy(PLAYBOOKS / "tasks/rollout.yml", tmp_path)
    plan = {"package_manager": manager, "repositories": [{"name": name}]}
    variables = {
        "host_plan": plan,
        "host_state": {"differences": {"nccl": ["x"]}},
        "bundle_place": "/var/lib/gpucheck/bundle",
        "host_lock_folder": str(tmp_path / "lock"),
    }
    tasks = [{"import_tasks": str(tmp_path / "rollout.yml")}]
    outcome = [str(PLAYBOOKS / "vars/outcome.yml")]
    status, words = shown(tmp_path, {**LOCAL, "vars_files": outcome, "vars": variables, "tasks": tasks})

    assert status == 0, words
    (environment,) = re.findall("ENV (.*?) END", words)
    assert (seen in environment) if seen else ("gpucheck/bundle" not in environment)


@pytest.mark.parametrize("task", [{"ansible.builtin.apt": {}}, {"ansible.builtin.dnf": {"use_backend": "dnf4"}}])
def test_every_step_waits_for_unattended_upgrades_as_long_as_the_first_one(tmp_path, task):
    """Ansible's apt gives up after a minute and its dnf after half of one: here, after the driver has changed."""
    (name, how), *_ = task.items()
    change = [{name: {**how, "name": "gpucheck-none", "state": "absent"}, "check_mode": True}]
    (tmp_path / "apply.yml").write_text(yaml.safe_dump(change))
    for file in ("prepare.yml", "quick.yml"):
        (tmp_path / file).write_text("[]\n")
    shutil.copy(PLAYBOOKS / "tasks/rollout.yml", tmp_path)
    variables = {
        "host_plan": {"package_manager": name.rpartition(".")[2], "repositories": []},
        "host_state": {"differences": {"nccl": ["x"]}},
        "bundle_place": "/var/lib/gpucheck/bundle",
        "host_lock_folder": str(tmp_path / "lock"),
        "packages_lock_timeout_s": "as long as it takes",
    }
    tasks = [{"import_tasks": str(tmp_path / "rollout.yml")}]
    outcome = [str(PLAYBOOKS / "vars/outcome.yml")]

    words = shown(tmp_path, {**LOCAL, "vars_files": outcome, "vars": variables, "tasks": tasks})[1]

    # The module is given the site's setting, and names it because it is no number.
    assert re.search("argument 'lock_timeout' .*as long as it takes", words), words


BUNDLE, NETWORK = {"name": "gpucheck-bundle"}, {"name": "nvidia-cuda"}
OFFLINE = "--no-index --find-links /var/lib/gpucheck/bundle/wheels"


@pytest.mark.parametrize(
    ("back", "now", "source", "pip"),
    sampled(
        [
            (NETWORK, NETWORK, "nvidia-cuda", "--index site"),
            (BUNDLE, BUNDLE, "gpucheck-bundle", OFFLINE),
            (BUNDLE, NETWORK, "nvidia-cuda", "--index site"),
            (NETWORK, BUNDLE, "gpucheck-bundle", OFFLINE),
        ],
        lambda number, _: number >= 2,
    ),
)
def test_a_rollback_keeps_the_source_that_the_host_has_now(tmp_path, back, now, source, pip):
    read = {
        "way_back": {"schema": "s", "group": "g", "stack": {"torch": None, "driver": "old"}, "repositories": [back]},
        "plan": {"schema": "s", "stack": {"torch": None, "driver": "new"}, "repositories": [now]},
    }
    remember = {"hosts": "gpu", "gather_facts": False, "tasks": [{"set_fact": {"gpu_facts_read": read}}]}
    record = {
        "source": "record",
        "folder": str(tmp_path),
        "wheel": "{{ controller_wheel }}",
        "bundle_place": "/var/lib/gpucheck/bundle",
        "torch_index": "https://torch/",
    }
    wheel = {"set_fact": {"controller_wheel": {"path": "/x/gpucheck.whl", "digest": "d"}}}
    find = [wheel, {"gpucheck.provision.stack_plans": record, "register": "controller_plans"}]
    first = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": find}
    result = "{{ host_plan.stack.driver }} {{ host_plan.repositories[0].name }} {{ host_pip_args | join(' ') }}"
    tasks = [
        {"import_tasks": str(PLAYBOOKS / "tasks/host_plan.yml")},
        {"ansible.builtin.debug": {"msg": f"TOLD {result} END"}},
    ]
    take = {**LOCAL, "vars_files": [str(PLAYBOOKS / "vars/planned.yml")], "tasks": tasks}
    site = {"gpucheck_pip_args": ["--index", "{{ 'si' ~ 'te' }}"]}
    status, words = shown(tmp_path, remember, first, take, hosts={"n1": site})

    assert status == 0, words
    assert f"TOLD old {source} {pip} END" in words
