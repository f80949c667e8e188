"""The house rules of the playbooks, held for every role and every task file, also for the one you are about to add."""

import ast
import re

import pytest
import yaml

from tests.playbooks.modules import COLLECTION, PLAYBOOKS, PLUGINS, ROLES
from tests.playbooks.task_walk import tasks

EVERY_ROLE = sorted(ROLES.iterdir())
TASK_FILES = sorted([*ROLES.glob("*/tasks/*.yml"), *PLAYBOOKS.glob("tasks/*.yml")])
OURS = {f"gpucheck.provision.{path.stem}" for kind in ("modules", "action") for path in PLUGINS.glob(f"{kind}/*.py")}
COMMAND = "ansible.builtin.command"
MODULES = {f"ansible.builtin.{name}" for name in ("apt", "dnf", "dpkg_selections", "package")}
PACKAGE_MANAGERS = {"dnf", "apt-get", "apt-mark", *MODULES}
KEYWORDS = {"name", "when", "become", "register", "loop", "loop_control", "vars", "tags", "delegate_to", "run_once"}
KEYWORDS |= {"check_mode", "changed_when", "failed_when", "diff", "environment", "timeout", "block", "rescue", "always"}
KEYWORDS |= {"module_defaults", "until", "retries", "delay", "no_log"}


EVERY = [(task.file, task.row) for task in tasks()]
PLAYS = [row for _, row in EVERY if "hosts" in row]
TASKS = [(file, row) for file, row in EVERY if not {"hosts", "ansible.builtin.import_playbook"} & row.keys()]


@pytest.mark.parametrize("role", EVERY_ROLE, ids=lambda role: role.name)
def test_argument_specs_say_what_defaults_do(role):
    options = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    real = yaml.safe_load((role / "defaults/main.yml").read_text()) or {}

    assert {key: option["default"] for key, option in options.items() if "default" in option} == real


@pytest.mark.parametrize("role", EVERY_ROLE, ids=lambda role: role.name)
def test_every_variable_of_a_role_is_described(role):
    """Whatever a role reads under its own prefix is an option, or made by the role itself."""
    options = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    text = "\n".join(path.read_text() for path in [*role.glob("tasks/*.yml"), *role.glob("vars/*.yml")])
    text = re.sub(r"\bgpucheck\.provision\.\w+", "", text)
    made = set(re.findall(rf"^\s*({role.name}_\w+):", text, re.MULTILINE))
    made |= set(re.findall(rf"register: ({role.name}_\w+)", text))

    assert set(re.findall(rf"\b{role.name}_\w+", text)) - made <= set(options) | {role.name}
    assert all(option.get("description") for option in options.values())


@pytest.mark.parametrize("path", TASK_FILES, ids=lambda path: str(path.relative_to(PLAYBOOKS)))
def test_roles_hold_no_versions(path):
    """Every version, branch and release comes from the plan: one here would contradict it one day."""
    text = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))

    assert re.findall(r"\d+\.\d+|-\d{2,3}\b|\bel\d+\b|=\d|ubuntu\d|rhel\d", text) == []


def test_tasks_use_only_built_in_modules_and_ours():
    """A collection would be one more thing to fetch before the first host can be provisioned."""
    seen = {(where, action) for where, task in TASKS for action in set(task) - KEYWORDS}

    assert seen
    assert {pair for pair in seen if not pair[1].startswith("ansible.builtin.") and pair[1] not in OURS} == set()


def test_no_task_hides_a_failure_or_runs_a_shell_line():
    """failed_when: false is left to the calls whose answer the next task judges."""
    actions = {"ansible.builtin.shell", "ansible.builtin.raw", "ignore_errors", "ignore_unreachable"}
    assert [(where, task["name"]) for where, task in TASKS if actions & set(task)] == []

    blind = sorted(task["register"] for _, task in TASKS if task.get("failed_when") is False)
    assert blind == [
        "bundle_made",
        "bundle_ordered",
        "bundle_verified",
        "driver_autoinstalled",
        "gpucheck_engine_answer",
        "gpucheck_environment",
    ]


def test_every_command_says_whether_it_changed_something():
    commands = [(where, task) for where, task in TASKS if "ansible.builtin.command" in task]

    assert commands
    assert [(where, task["name"]) for where, task in commands if "changed_when" not in task] == []
    assert [(where, task["name"]) for where, task in commands if "argv" not in task["ansible.builtin.command"]] == []


def test_every_play_leaves_fact_gathering_off():
    assert len(PLAYS) >= 5
    assert all(play["gather_facts"] is False for play in PLAYS)


@pytest.mark.parametrize("path", sorted(PLUGINS.glob("module*/*.py")), ids=lambda path: path.stem)
def test_what_runs_on_hosts_is_understood_by_old_pythons(path):
    """A host's Python may be years older than the controller's."""
    ast.parse(path.read_text(), feature_version=(3, 6))


@pytest.mark.parametrize("path", sorted((PLUGINS / "modules").glob("*.py")), ids=lambda path: path.stem)
def test_every_module_documents_its_options(path):
    """The documented options are the ones the module accepts."""
    tree = ast.parse(path.read_text())
    page = yaml.safe_load(path.with_suffix(".yml").read_text())["DOCUMENTATION"]
    assert any(note.startswith("Why this module exists. ") for note in page["notes"]), "say what no builtin module does"
    (accepted,) = [
        ast.literal_eval(keyword.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "AnsibleModule"
        for keyword in node.keywords
        if keyword.arg == "argument_spec"
    ]

    # Whether a value is a secret is no part of the documentation.
    documented, given = (
        {name: {key: row[key] for key in row if key not in ("description", "no_log")} for name, row in rows.items()}
        for rows in (page["options"], accepted)
    )
    assert documented == given


def test_every_module_names_the_plugin_that_decodes_its_result():
    """In a collection Ansible finds it by this list; the name alone only counts for plugins of no collection."""
    routed = yaml.safe_load((COLLECTION / "meta/runtime.yml").read_text())["plugin_routing"]["modules"]
    own = {path.stem for path in (PLUGINS / "action").glob("*.py")}

    assert routed == {
        path.stem: {"action_plugin": "gpucheck.provision.normal"}
        for path in (PLUGINS / "modules").glob("*.py")
        if path.stem not in own
    }


def test_no_package_manager_is_called_once_a_package():
    """A fleet has tens of locks a host, and dnf takes most of a second a call."""
    looped = [(path, task) for path, task in TASKS if "loop" in task]
    called = {(path, word) for path, task in looped for word in [*task, *task.get(COMMAND, {}).get("argv", [])[:1]]}

    assert not {(path, word) for path, word in called if word in PACKAGE_MANAGERS}
