"""Load our Ansible modules the way Ansible does on a host: their shared code appears as ansible.module_utils.<name>."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"
PLUGINS = PLAYBOOKS / "plugins"


def _load(name: str, path: Path) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def shared(name: str) -> ModuleType:
    """One file of plugins/module_utils, with everything it imports from there."""
    package = importlib.import_module("ansible.module_utils")
    for needed in (
        "gpu_files",
        "gpu_credentials",
        "gpu_lock",
        "gpu_safety",
        "gpu_rdma",
        "openpgp",
        "gpu_host",
        "gpu_module_options",
        "gpu_plan",
        "gpu_repository",
        "gpu_archive",
        "gpu_tuning",
        "gpu_services",
        "gpu_isolation",
        "gpu_boot",
        "gpu_options",
        "gpu_loader",
        "gpu_engines",
        "gpu_record",
        "gpu_kernel",
        "gpu_note",
        "gpu_place",
        "gpu_keys",
        "gpu_headers",
        "gpu_compare",
        "gpu_call",
        "gpu_explain",
        "gpu_apt",
        "gpu_dkms",
        "gpu_dnf",
        "gpu_bundle",
        "gpu_bundle_apt",
        "gpu_bundle_dnf",
    ):
        loaded = _load(f"ansible.module_utils.{needed}", PLUGINS / "module_utils" / f"{needed}.py")
        setattr(package, needed, loaded)
    return sys.modules[f"ansible.module_utils.{name}"]


def module(name: str) -> ModuleType:
    """One file of plugins/modules."""
    shared("gpu_host")
    return _load(f"playbooks_module_{name}", PLUGINS / "modules" / f"{name}.py")


def action(name: str) -> ModuleType:
    """One file of plugins/action."""
    shared("gpu_host")
    return _load(f"playbooks_action_{name}", PLUGINS / "action" / f"{name}.py")


def controller() -> ModuleType:
    """What all plugins on the controller share."""
    return _load("node_result", PLUGINS / "plugin_utils/node_result.py")


class Ended(BaseException):
    """The module has answered; like the end of its process, nothing of it catches this."""


class _Module:
    """AnsibleModule without Ansible: its parameters are given, its answer is kept."""

    def __init__(self, params: dict[str, Any], check_mode: bool, diff: bool) -> None:
        self.params, self.check_mode, self._diff = params, check_mode, diff
        self.answer: dict[str, Any] = {}

    def exit_json(self, **answer: Any) -> None:
        self.answer = {"failed": False, **answer}
        raise Ended

    def fail_json(self, **answer: Any) -> None:
        self.answer = {"failed": True, "changed": False, **answer}
        raise Ended

    def atomic_move(self, source: str, target: str) -> None:
        Path(source).replace(target)


def answer_of(code: ModuleType, params: dict[str, Any], check_mode: bool = False, diff: bool = False) -> dict[str, Any]:
    """What a module's main() answers to these parameters, run in this process; those with a default may be left out."""

    def ready(argument_spec: dict[str, Any], supports_check_mode: bool) -> _Module:
        assert supports_check_mode
        assert set(params) <= set(argument_spec)
        given.params = {name: params.get(name, option.get("default")) for name, option in argument_spec.items()}
        return given

    given = _Module({}, check_mode, diff)
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
