"""Load our Ansible modules the way Ansible does on a host: their shared code appears as ansible.module_utils.<name>."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

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
        "gpu_safety",
        "gpu_rdma",
        "gpu_host",
        "openpgp",
        "gpu_module_options",
        "gpu_plan",
        "gpu_repository",
        "gpu_archive",
        "gpu_tuning",
        "gpu_services",
        "gpu_isolation",
        "gpu_boot",
        "gpu_options",
        "gpu_engines",
        "gpu_record",
        "gpu_kernel",
        "gpu_note",
        "gpu_compare",
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
    return _load(f"playbooks_action_{name}", PLUGINS / "action" / f"{name}.py")
