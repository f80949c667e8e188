"""Every task of the playbooks as data, and which variables each value of one is computed from."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from jinja2 import Environment, nodes

from tests.playbooks.modules import PLAYBOOKS, ROLES

PARTS = ("tasks", "block", "rescue", "always")
LOOKUPS = ("lookup", "query", "q")
# Modules that change nothing on a host.
READING = {
    *("add_host", "assert", "debug", "fail", "import_role", "import_tasks", "include_role", "include_tasks", "meta"),
    *("dry_run", "fetch_files", "gpu_facts", "gpu_verify", "host_lock", "import_playbook", "known_variables"),
    *("plan_state", "rollout_batches", "rollout_mark", "set_fact", "stack_plans"),
}
# How Ansible names values that a task or a play did not register.
MAGIC = ("ansible_failed_result", "ansible_facts", "ansible_local")


class Named(dict[str, Any]):
    """Filters and tests: all exist, none is called."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> Any:
        return lambda *_: None

    def get(self, key: str, default: Any = None) -> Any:
        return self[key]


ENGINE = Environment(autoescape=False)  # noqa: S701 - parses, renders nothing
ENGINE.filters = ENGINE.tests = Named()


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

    @property
    def arguments(self) -> Any:
        return next((value for key, value in self.row.items() if key.rpartition(".")[2] == self.module), None)


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
    """All of them, with the plays and blocks around them, and the files of variables."""
    files = documents()
    here = controller_files(files)
    found = []
    for path, content in files.items():
        name = str(path.relative_to(ROLES if path.is_relative_to(ROLES) else PLAYBOOKS))
        for row in content:
            local = path in here or row.get("hosts") == "localhost"
            found += [Task(name, local or "delegate_to" in part, part) for part in rows([row])]
    return (*found, *(Task(name, True, {"vars": row}) for name, row in variables().items()))


@cache
def variables() -> dict[str, dict[str, Any]]:
    """The files of variables, of the playbooks and of the roles."""
    paths = [*PLAYBOOKS.glob("vars/*.yml"), *ROLES.glob("*/vars/*.yml"), *ROLES.glob("*/defaults/*.yml")]
    known = {path: yaml.safe_load(path.read_text(encoding="utf-8")) for path in paths if path.stem != "site_variables"}
    return {"/".join(path.parts[-3:]): row for path, row in sorted(known.items())}


def names(value: Any) -> set[str]:
    """What the templates in a value read: variables, and attributes and texts, which may name variables of hostvars."""
    if isinstance(value, dict):
        return set().union(*(names(part) for pair in value.items() for part in pair), set())
    if isinstance(value, list):
        return set().union(*map(names, value), set())
    return read(ENGINE.parse(value)) if isinstance(value, str) else set()


def read(node: nodes.Node) -> set[str]:
    """What an expression reads."""
    found = {name.name for name in node.find_all(nodes.Name)} | {part.attr for part in node.find_all(nodes.Getattr)}
    texts = (part.value for part in node.find_all(nodes.Const) if isinstance(part.value, str))
    return found | {text.partition(".")[0] for text in texts}


def looked_up(value: Any) -> set[str]:
    """What the arguments of lookups in a value read: names of files, mostly."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return set().union(*map(looked_up, parts), set())
    calls = ENGINE.parse(value).find_all(nodes.Call) if isinstance(value, str) else ()
    return set().union(*(read(call) for call in calls if getattr(call.node, "name", "") in LOOKUPS), set())


def changing_steps() -> list[str]:
    """Names of all tasks that may change a host, as Ansible shows them; those of a role with its name."""
    found = []
    for task in tasks():
        role = task.file.partition("/tasks/")[0] if "/tasks/" in task.file else ""
        if task.module and not task.here and task.module not in READING and task.row.get("changed_when") is not False:
            found.append(f"{role} : {task.name}" if role else task.name)
    return sorted(set(found))


@cache
def definitions() -> dict[str, set[str]]:
    """By variable, what its values are computed from, wherever it is set."""
    found: dict[str, set[str]] = {}
    given = []
    for task in tasks():
        given.append(task.row.get("vars"))
        if task.module == "set_fact":
            given.append(task.arguments)
        given.append({task.row.get("loop_control", {}).get("loop_var", "item"): task.row.get("loop")})
    for row in given:
        for name, value in (row or {}).items():
            if name != "item":
                found.setdefault(name, set()).update(names(value))
    return found


@cache
def origins() -> dict[str, set[str]]:
    """By registered variable, the modules whose results it has: "command here" ran on the controller."""
    found: dict[str, set[str]] = {name: {name} for name in MAGIC}
    for task in tasks():
        if "register" in task.row:
            found.setdefault(task.row["register"], set()).add(f"{task.module} here" if task.here else task.module)
    return found


def modules_behind(read_names: set[str]) -> set[str]:
    """The modules whose results these variables are computed from."""
    left, seen, found = list(read_names), set(), set()
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            found |= origins().get(name, set())
            left += definitions().get(name, ())
    return found
