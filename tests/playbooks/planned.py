"""A host that is exactly as its plan wants it, for tests to take one thing away from."""

import copy
import json
from pathlib import Path
from typing import Any

from tests.playbooks.modules import shared

plan_code = shared("host_plan")
repository_code = shared("package_repository")
record_code = shared("record")
kernel_code = shared("kernel")
compare_code = shared("compare")
running_code = shared("running")

VERSION = "580.178.04-1ubuntu1"
PLAN: dict[str, Any] = {
    "schema": "gpucheck.plan/1",
    "group": "ubuntu-22.04-x86_64-15f8x2",
    "package_manager": "apt",
    "repositories": [
        {
            "name": "nvidia-cuda",
            "kind": "apt",
            "url": "https://mirror.example.org/ubuntu2204/x86_64/",
            "suite": "/",
            "key_url": "https://mirror.example.org/key.pub",
            "key_fingerprint": "E330F152D648B8AD42B0AF30D384DE7990FFEED0",
            "keyring": "KEYRING",
        }
    ],
    "module_stream": None,
    "components": {
        "driver": {
            "packages": [{"name": "nvidia-dkms-580", "version": VERSION, "spec": f"nvidia-dkms-580={VERSION}"}],
            "holds": ["nvidia-dkms-580"],
        },
        "nccl": {
            "packages": [{"name": "libnccl2", "version": "2.29.3-1+cuda12.9", "spec": "libnccl2=2.29.3-1+cuda12.9"}],
            "holds": ["libnccl2"],
        },
        **{name: {"packages": [], "holds": []} for name in ("fabric_manager", "cuda", "cudnn", "container_toolkit")},
    },
    "headers": ["linux-headers-5.15.0-179-generic"],
    "files": [{"path": "FILE", "content": "blacklist nouveau\n", "mode": "0644", "initramfs": True}],
    "services": [{"name": "nvidia-persistenced", "enabled": True, "state": "started"}],
    "reboot": {"when": ["nouveau-loaded", "loaded-differs-from-installed", "module-files-changed"]},
    "stack": {"torch": None, "tensorflow": None},
    "expected": {"driver_version": "580.178.04", "kernel_module": "proprietary", "fabric_manager_version": None},
}
DRIVER: dict[str, str | None] = {
    "loaded_version": "580.178.04",
    "loaded_flavour": "proprietary",
    "installed_version": "580.178.04",
    "installed_flavour": "proprietary",
}
RUNNING = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"}
DATA = Path(__file__).parent / "data"


class Machine:
    """A host that is exactly as PLAN wants it; tests take one thing away."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.plan = copy.deepcopy(PLAN)
        self.plan["files"][0]["path"] = str(folder / "nouveau.conf")
        self.plan["repositories"][0]["keyring"] = str(folder / "key.gpg")
        self.facts = {
            "driver": dict(DRIVER),
            "kernel": "5.15.0-179-generic",
            "headers": ["5.15.0-179-generic"],
            "kernels": ["5.15.0-179-generic"],
            "dkms": {"580.178.04": ["5.15.0-179-generic"]},
            "nouveau_loaded": False,
            "secure_boot": False,
            "python3": "3.11.2",
            "holds": ["libnccl2", "nvidia-dkms-580"],
            "processes": [],
            "foreign": [],
            "package_locks": [],
            "free_bytes": {"/usr": 1 << 40},
        }
        packages = {"nvidia-dkms-580": VERSION, "libnccl2": "2.29.3-1+cuda12.9", "libnvidia-cfg1-580": VERSION}
        self.extras = {"packages": packages, "keys": [], "unfinished": [], "locks": [], "family": "dpkg"}
        self.extras.update(doubled={}, modules=["nvidia"], kernels={})
        self.services = {"nvidia-persistenced": dict(RUNNING)}
        self.tools = {"nvidia-smi": "/usr/bin/nvidia-smi"}
        self.lost = False
        (folder / "nouveau.conf").write_text("blacklist nouveau\n")
        (folder / "nouveau.conf").chmod(0o644)
        (folder / "key.gpg").write_bytes(repository_code.read_key((DATA / "signing-key-rsa2048.asc").read_bytes()))
        (folder / "nvidia-cuda.list").write_text(
            f"deb [signed-by={folder / 'key.gpg'}] https://mirror.example.org/ubuntu2204/x86_64/ /\n"
        )
        (folder / "stack.json").write_text(json.dumps(self.plan, indent=4))
        (folder / "marker").write_text("abc\n")
        for name, value in {
            "MARKER": folder / "marker",
            "STACK_FILE": folder / "stack.json",
            "INITRAMFS_PENDING": folder / "initramfs-pending",
            "REBOOT_REQUIRED": folder / "reboot-required",
            "BUNDLE_PLACE": folder / "bundle",
            "MODULES_D": folder,
        }.items():
            monkeypatch.setattr(plan_code, name, str(value))
        monkeypatch.setattr(repository_code, "APT_LISTS", str(folder))
        monkeypatch.setattr(running_code, "states", lambda names: {n: self.services.get(n, {}) for n in names})
        monkeypatch.setattr(plan_code.shutil, "which", self.tools.get)
        monkeypatch.setattr(compare_code, "read_facts", lambda host: (self.facts, self.extras))
        monkeypatch.setattr(running_code, "library_lost", lambda: self.lost)
        monkeypatch.setattr(kernel_code, "NOTE", str(folder / "kernel-lock.json"))
        for name in ("INSTALLED", "BASELINE", "TRANSACTION", "PREVIOUS", "DRAINED"):
            monkeypatch.setattr(record_code, name, str(folder / f"{name.lower()}.json"))

    def lose_library(self):
        self.lost = True

    def compare(self):
        return compare_code.compare("node07", self.plan, "abc")

    def differences(self):
        return self.compare()["differences"]
