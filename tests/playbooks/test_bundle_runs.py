"""What Ansible makes of a bundle: refusals before anything changes, and no other source in the environment."""

import re
import shutil

import pytest
import yaml

from tests.playbooks.modules import PLAYBOOKS
from tests.playbooks.test_runs import playbook
from tests.shared import sampled

pytestmark = pytest.mark.slow

LOCAL = {"hosts": "gpu", "connection": "local", "gather_facts": False}
PYTHON = {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}
GIB = 1 << 30


def play(tmp_path, *plays, hosts=("n1",)):
    """What a playbook of these plays says, on hosts that are all this machine."""
    (tmp_path / "play.yml").write_text(yaml.safe_dump(list(plays)))
    known = hosts if isinstance(hosts, dict) else dict.fromkeys(hosts)
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"gpu": {"hosts": known}}))
    done = playbook(tmp_path / "hosts.yml", str(tmp_path / "play.yml"))
    return done.returncode, " ".join(done.stdout.split())


def preflight(tmp_path, headers_missing, **bundle):
    """What preflight says of a host that lacks these headers."""
    host = {"busy": [], "secure_boot": False, "rivals": [], "foreign": [], "free_bytes": {}, "kernel": "6.1"}
    host["archive"] = None
    state = {
        "differences": {"driver": ["x"]},
        "components": {"driver": {"packages": []}, "cuda": {"packages": []}},
        "host": {**host, "headers_missing": headers_missing},
    }
    variables = {"preflight_plan": {"package_manager": "apt"}, "preflight_state": state, "preflight_bundle": bundle}
    task = {"ansible.builtin.include_role": {"name": "gpucheck.provision.preflight"}, "vars": variables}
    return play(tmp_path, {**LOCAL, "vars": PYTHON, "tasks": [task]})


ROOM = {"missing_bytes": 3 * GIB, "free_bytes": 4 * GIB}


def test_a_host_with_room_and_its_headers_in_the_bundle_goes_on(tmp_path):
    """No source is asked for headers: there is none."""
    status, words = preflight(tmp_path, ["linux-headers-6.1"], headers=["linux-headers-6.1"], **ROOM)

    assert status == 0, words
    assert re.search("skipping: .n1.|skipped=[1-9]", words)


def test_a_host_is_refused_for_space_and_headers_at_once(tmp_path):
    status, words = preflight(tmp_path, ["linux-headers-6.1"], headers=[], missing_bytes=5 * GIB, free_bytes=4 * GIB)

    assert status == 2
    assert "5.0 GiB of the bundle must be copied to /var/lib/gpucheck, but only 4.0 GiB are free" in words
    assert "neither the host nor the bundle has linux-headers-6.1" in words


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
    (tmp_path / "prepare.yml").write_text("[]\n")
    shutil.copy(PLAYBOOKS / "tasks/rollout.yml", tmp_path)
    plan = {"package_manager": manager, "repositories": [{"name": name}]}
    variables = {
        **PYTHON,
        "host_plan": plan,
        "host_state": {"differences": {"nccl": ["x"]}},
        "bundle_place": "/var/lib/gpucheck/bundle",
        "host_lock_folder": str(tmp_path / "lock"),
    }
    tasks = [{"import_tasks": str(tmp_path / "rollout.yml")}]
    outcome = [str(PLAYBOOKS / "vars/outcome.yml")]
    status, words = play(tmp_path, {**LOCAL, "vars_files": outcome, "vars": variables, "tasks": tasks})

    assert status == 0, words
    (environment,) = re.findall("ENV (.*?) END", words)
    assert (seen in environment) if seen else ("gpucheck/bundle" not in environment)


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
    said = "{{ host_plan.stack.driver }} {{ host_plan.repositories[0].name }} {{ host_pip_args | join(' ') }}"
    tasks = [
        {"import_tasks": str(PLAYBOOKS / "tasks/host_plan.yml")},
        {"ansible.builtin.debug": {"msg": f"TOLD {said} END"}},
    ]
    take = {**LOCAL, "vars_files": [str(PLAYBOOKS / "vars/planned.yml")], "tasks": tasks}
    site = {"gpucheck_pip_args": ["--index", "{{ 'si' ~ 'te' }}"]}
    status, words = play(tmp_path, remember, first, take, hosts={"n1": site})

    assert status == 0, words
    assert f"TOLD old {source} {pip} END" in words


def test_files_are_sent_and_fetched_as_they_are(tmp_path):
    for folder in ("here", "there", "back"):
        (tmp_path / folder).mkdir()
    content = bytes(range(256)) * 1000
    (tmp_path / "here/a.deb").write_bytes(content)
    there = {"dest": str(tmp_path / "there"), "files": {str(tmp_path / "here/a.deb"): "packages:a.deb"}}
    back = {"src": str(tmp_path / "there"), "dest": str(tmp_path / "back/deep"), "files": ["packages:a.deb"]}
    status, words = play(
        tmp_path,
        {**LOCAL, "tasks": [{"gpucheck.provision.send_files": there}, {"gpucheck.provision.fetch_files": back}]},
    )

    assert status == 0, words
    assert (tmp_path / "back/deep/packages:a.deb").read_bytes() == content


@pytest.mark.parametrize("kind", ["send_files", "fetch_files"])
def test_a_file_that_does_not_get_across_is_named(tmp_path, kind):
    files = {"/nowhere/a.deb": "a.deb"} if kind == "send_files" else ["a.deb"]
    words = {"dest": str(tmp_path), "files": files, **({} if kind == "send_files" else {"src": "/nowhere"})}
    status, told = play(tmp_path, {**LOCAL, "tasks": [{kind: words}]})

    assert status == 2
    assert re.search(r"a\.deb cannot be (sent|fetched): ", told)
    assert "Traceback" not in told
