"""Load the plugins of the collection as Ansible does: each under its name below ansible_collections."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"
COLLECTION = PLAYBOOKS / "ansible_collections/gpucheck/provision"
PLUGINS, ROLES = COLLECTION / "plugins", COLLECTION / "roles"

if str(PLAYBOOKS) not in sys.path:
    sys.path.insert(0, str(PLAYBOOKS))


def plugin(kind: str, name: str) -> ModuleType:
    """One file of plugins/<kind>."""
    return importlib.import_module(f"ansible_collections.gpucheck.provision.plugins.{kind}.{name}")


def shared(name: str) -> ModuleType:
    """One file of plugins/module_utils."""
    return plugin("module_utils", name)


def module(name: str) -> ModuleType:
    """One file of plugins/modules."""
    return plugin("modules", name)


def action(name: str) -> ModuleType:
    """One file of plugins/action."""
    return plugin("action", name)


def controller() -> ModuleType:
    """What all plugins on the controller share."""
    return plugin("plugin_utils", "node_result")


class Ended(BaseException):
    """The module has answered, with this message if it failed; nothing of it catches this, as the process ends."""


class Module:
    """AnsibleModule without Ansible: its parameters are given, its answer is kept."""

    def __init__(self, params: dict[str, Any], check_mode: bool = False, diff: bool = False) -> None:
        self.params, self.check_mode, self._diff = params, check_mode, diff
        self.answer: dict[str, Any] = {}

    def exit_json(self, **answer: Any) -> None:
        self.answer = {"failed": False, **answer}
        raise Ended

    def fail_json(self, **answer: Any) -> None:
        self.answer = {"failed": True, "changed": False, **answer}
        raise Ended(answer["msg"])

    def atomic_move(self, source: str, target: str) -> None:
        Path(source).replace(target)


def programs(monkeypatch: Any, run: Callable[..., tuple[int, str, str]]) -> None:
    """Have every module's run_command call this function: with argv, and the options of the call by name."""
    monkeypatch.setattr(Module, "run_command", lambda _, argv, **how: run(argv, **how), raising=False)


def answer_of(code: ModuleType, params: dict[str, Any], check_mode: bool = False, diff: bool = False) -> dict[str, Any]:
    """What a module's main() answers to these parameters, run in this process; those with a default may be left out."""

    def ready(argument_spec: dict[str, Any], supports_check_mode: bool) -> Module:
        assert supports_check_mode
        assert set(params) <= set(argument_spec)
        given.params = {name: params.get(name, option.get("default")) for name, option in argument_spec.items()}
        return given

    given = Module({}, check_mode, diff)
    with patch.object(code, "AnsibleModule", ready):
        try:
            code.main()
        except Ended:
            # Whatever a module of ours returns has to get through on the controller.
            assert code.__file__ is not None
            node = controller()
            known = {name: {**row, "returned": ""} for name, row in node.fields(Path(code.__file__)).items()}
            node.decoded(json.loads(json.dumps(given.answer)), known)
            return given.answer
    raise AssertionError(f"{code.__name__} ended without an answer")
