"""Every task of the playbooks as data."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.playbooks.modules import PLAYBOOKS, ROLES

PARTS = ("tasks", "block", "rescue", "always")
# Modules that change nothing on a host.
READING = {
    *("add_host", "assert", "debug", "fail", "import_role", "import_tasks", "include_role", "include_tasks", "meta"),
    *("dry_run", "fetch", "gpu_facts", "gpu_verify", "host_lock", "import_playbook", "known_variables"),
    *("plan_state", "rollout_batches", "rollout_mark", "set_fact", "stack_plans"),
}


class Task(NamedTuple):
    """One task. file: below the playbooks or the roles. here: it runs on the controller."""

    file: str
    here: bool
    row: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.row.get("name", ""))

    @property
    def module(self) -> str:
        """The module's last name; "" for a block or a play."""
        words = [key for key in self.row if key.startswith(("ansible.builtin.", "gpucheck.provision."))]
        return words[0].rpartition(".")[2] if words else ""


def documents() -> dict[Path, Any]:
    """Every file of plays or tasks, as data."""
    paths = [*PLAYBOOKS.glob("*.yml"), *PLAYBOOKS.glob("tasks/*.yml"), *ROLES.glob("*/tasks/*.yml")]
    return {path: yaml.safe_load(path.read_text(encoding="utf-8")) or [] for path in sorted(paths)}


def rows(part: Any) -> Iterator[dict[str, Any]]:
    """The plays, blocks and tasks of a file, outer ones first."""
    for row in part or ():
        yield row
        for name in PARTS:
            yield from rows(row.get(name))


def included(row: dict[str, Any]) -> str:
    """The name of the file of tasks that a task takes in."""
    for key in ("ansible.builtin.import_tasks", "ansible.builtin.include_tasks"):
        if key in row:
            return str(row[key]["file"] if isinstance(row[key], dict) else row[key])
    return ""


def controller_files(files: dict[Path, Any]) -> set[Path]:
    """Files whose tasks run on the controller: taken in by a play of localhost, at any depth."""
    left = [(path, row) for path, rows_ in files.items() for row in rows_ if row.get("hosts") == "localhost"]
    found: set[Path] = set()
    while left:
        path, row = left.pop()
        for inner in rows([row]):
            target = path.parent / included(inner)
            if included(inner) and target in files and target not in found:
                found.add(target)
                left += [(target, part) for part in files[target]]
    return found


@cache
def tasks() -> tuple[Task, ...]:
    """All of them, with the plays and blocks around them."""
    files = documents()
    here = controller_files(files)
    found = []
    for path, content in files.items():
        name = str(path.relative_to(ROLES if path.is_relative_to(ROLES) else PLAYBOOKS))
        for row in content:
            local = path in here or row.get("hosts") == "localhost"
            found += [Task(name, local or "delegate_to" in part, part) for part in rows([row])]
    return tuple(found)


def changing_steps() -> list[str]:
    """Names of all tasks that may change a host, as Ansible shows them; those of a role with its name."""
    found = []
    for task in tasks():
        role = task.file.partition("/tasks/")[0] if "/tasks/" in task.file else ""
        if task.module and not task.here and task.module not in READING and task.row.get("changed_when") is not False:
            found.append(f"{role} : {task.name}" if role else task.name)
    return sorted(set(found))
