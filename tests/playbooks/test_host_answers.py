"""What a host answers reaches no connection, no path and no command of the controller; shown for every task.

A result goes back to the host that gave it, as an argument of a module that runs there: that host can do the same by
itself. Everywhere else it has to be in the table below, with the reason why it can do no harm.
"""

import pytest

from tests.playbooks.task_walk import Task, included, looked_up, modules_behind, names, tasks

# Python warns of the regular expressions in templates.
pytestmark = pytest.mark.filterwarnings("ignore:invalid escape sequence")

# Results of the controller's own modules and programs: what they take from a host, gpucheck has decoded.
OWN = {"python_wheel here", "rollout_batches here", "stack_plans here", "command here", "rollout_mark"}
# Action plugins that hand paths to a connection, or write here: their arguments count, although a module runs there.
TRANSFERS = {"copy", "fetch", "fetch_files", "gpu_verify", "script", "send_files", "slurp", "template", "unarchive"}
# Arguments that are content or words, never a name.
WORDS = {"content", "msg", "that", "fail_msg", "success_msg", "mode", "quiet"}
# On the controller: nothing of what they are given is opened or run.
SPOKEN = {"assert", "debug", "fail", "meta", "set_fact", "", "include_role", "import_role"}
KEYWORDS = ("delegate_to", "environment", "module_defaults", "hosts", "become_user", "vars_files")

CHECKED = "files.inside and files.plain check each name before the first transfer"
SIZES = "numbers by checked names: a transfer ends there"
FILE_NAME = "a group of a plan: gpucheck named it, and from a host's record stack_plans takes only a plain file name"
PLAN_FILE = "stack_plans made the path from the inventory's name of the host"
CHOSEN = "results only decide which of the inventory's hosts are in a list"
TWO = "results only decide between two fixed values; host_lock's run is the action plugin's own"
KIND = "a version and an architecture: check_usable matches the whole answer, and both are words of a fixed form"
THERE = "runs on the host that gave it"
# (file, argument): (modules whose results it may have, or None for any; why that is safe).
ALLOWED: dict[tuple[str, str], tuple[set[str] | None, str]] = {
    ("tasks/bundle_collect.yml", "fetch_files.files"): ({"bundle_packages"}, CHECKED),
    ("tasks/bundle_collect.yml", "fetch_files.sizes"): ({"bundle_packages"}, SIZES),
    ("tasks/bundle_send.yml", "send_files.files"): ({"bundle_folder", "stack_plans", "kernel_upgrade"}, CHECKED),
    ("playbooks/vars/controller.yml", "lookup"): ({"stack_plans", "kernel_upgrade"}, FILE_NAME),
    ("tasks/host_plan.yml", "lookup"): ({"stack_plans"}, PLAN_FILE),
    ("tasks/repositories.yml", "command.argv"): (None, FILE_NAME),
    ("tasks/bundle_order.yml", "copy.dest"): (None, CHOSEN),
    ("tasks/batches.yml", "rollout_batches.hosts"): (None, CHOSEN),
    ("tasks/quick.yml", "gpu_verify.gpus"): ({"gpu_facts"}, "the length of a list, which is compared with another"),
    ("tasks/merge.yml", "copy.dest"): (None, CHOSEN),
    ("tasks/merge.yml", "command.argv"): (None, CHOSEN),
    ("tasks/image.yml", "command.argv"): ({"gpu_facts"}, "the text of one option, which gpucheck decodes"),
    ("tasks/check_build.yml", "command.argv"): ({"command", "stack_plans"}, KIND),
    ("tasks/check_send.yml", "send_files.files"): ({"command"}, KIND),
    ("tasks/verify.yml", "gpu_verify.arguments"): ({"command"}, THERE),
    ("tasks/verify.yml", "gpu_verify.program"): ({"command"}, THERE),
    ("slurm/tasks/main.yml", "copy.dest"): (
        {"command"},
        "the host names a place of its own, and root of the host writes there",
    ),
    ("slurm/tasks/main.yml", "copy.backup"): ({"command"}, TWO),
    ("tasks/rollout.yml", "environment"): (None, TWO),
    ("tasks/rollout.yml", "module_defaults"): (None, TWO),
}


def flows(task: Task) -> set[tuple[str, str]]:
    """(argument, module) for each result that reaches what a task opens, runs or connects to on the controller."""
    loop = names(task.row.get("loop"))
    found: set[tuple[str, str]] = set()

    def reaches(argument: str, read: set[str]) -> None:
        read = read | loop if "item" in read else read
        found.update((argument, module) for module in modules_behind(read - {"item"}) - OWN)

    if task.module not in SPOKEN and (task.here or task.module in TRANSFERS):
        given = task.arguments if isinstance(task.arguments, dict) else {"file": task.arguments}
        for key, value in given.items():
            if key not in WORDS:
                reaches(f"{task.module}.{key}", names(value))
    if included(task.row):
        reaches("include", names(included(task.row)))
    for key in KEYWORDS:
        reaches(key, names(task.row.get(key)))
    for key, value in (task.row.get("vars") or {}).items():
        if key.startswith("ansible_"):
            reaches(key, names(value))
    inner = ("block", "rescue", "always", "tasks")
    reaches("lookup", looked_up({key: value for key, value in task.row.items() if key not in inner}))
    return found


ANSWER = "{{ gpu_facts_read.facts.kernel }}"


@pytest.mark.parametrize(
    ("row", "argument"),
    [
        ({"ansible.builtin.command": {"argv": ["x", ANSWER]}, "delegate_to": "localhost"}, "command.argv"),
        ({"ansible.builtin.command": {"argv": ["{{ item }}"]}, "loop": ANSWER, "delegate_to": "x"}, "command.argv"),
        ({"ansible.builtin.command": "x", "delegate_to": ANSWER}, "delegate_to"),
        ({"ansible.builtin.copy": {"src": ANSWER}}, "copy.src"),
        ({"gpucheck.provision.fetch_files": {"src": f"{ANSWER}/x"}}, "fetch_files.src"),
        ({"gpucheck.provision.gpu_facts": {}, "environment": {"PATH": ANSWER}}, "environment"),
        ({"ansible.builtin.include_tasks": f"{ANSWER}.yml"}, "include"),
        ({"ansible.builtin.debug": {}, "vars": {"ansible_host": ANSWER}}, "ansible_host"),
        ({"ansible.builtin.debug": {"msg": "{{ lookup('file', gpu_facts_read.facts.kernel) }}"}}, "lookup"),
        ({"ansible.builtin.copy": {"src": "{{ hostvars['a'].gpu_facts_read.facts }}"}}, "copy.src"),
    ],
)
def test_an_answer_that_reaches_the_controller_is_found(row, argument):
    task = Task("x.yml", "delegate_to" in row, row)

    assert (argument, "gpu_facts") in flows(task)
    assert not allowed(task, argument, "gpu_facts")


def allowed(task: Task, argument: str, module: str) -> bool:
    modules, _ = ALLOWED.get((task.file, argument), (set(), ""))
    return modules is None or module in modules


@pytest.mark.parametrize("file", sorted({task.file for task in tasks()}))
def test_no_answer_of_a_host_reaches_the_controller(file):
    of_file = [task for task in tasks() if task.file == file]
    wrong = sorted({(task.name, *flow) for task in of_file for flow in flows(task) if not allowed(task, *flow)})

    assert not wrong, "have the controller choose the value, or say in ALLOWED why it is safe"


def test_every_exception_is_still_needed():
    assert set(ALLOWED) <= {(task.file, argument) for task in tasks() for argument, _ in flows(task)}
