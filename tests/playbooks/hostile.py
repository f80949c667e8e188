"""Hosts that answer every module with what a test has them say: good ones, and hostile ones next to them.

The playbooks, the plugins, gpucheck, Ansible and, where a test wants it, ssh and sshd are the real ones. Only a host's
interpreter is replaced: whatever module it is given, it prints JSON of the test's choice.
"""

import copy
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.playbooks import ssh_host
from tests.playbooks.modules import PLAYBOOKS, PLUGINS, action, controller
from tests.playbooks.stubs import script

BIN = Path(sys.executable).parent
# Another ansible-core: GPUCHECK_TEST_ANSIBLE=/path/to/ansible-playbook.
ANSIBLE = os.environ.get("GPUCHECK_TEST_ANSIBLE", str(BIN / "ansible-playbook"))
CALL_S = 900
RUNNER = Path(__file__).with_name("host_python")
INTERPRETER = """#!{python} -IS
import json, os, re, shutil, subprocess, sys, time
folder = os.path.dirname(os.path.realpath(__file__))
source = sys.stdin.read()
found = re.search(r"_ansible_module_name\\W+(?:[a-z_]+[.])*([a-z_]+)", source)
name = found.group(1) if found else "unknown"
with open(folder + "/asked", "a") as file:
    file.write(name + "\\n")
with open(folder + "/answers.json") as file:
    answers = json.load(file)
with open(folder + "/asked") as file:
    before = file.read().split().count(name) - 1
transfer = re.search("/var/tmp/gpucheck-transfer-[0-9a-z]+", source)
if transfer:
    with open(folder + "/transfers", "a") as file:
        file.write(transfer.group() + "\\n")
if transfer and os.path.isdir(transfer.group()):
    if name == "bundle_packages":
        shutil.copytree(folder + "/brings", transfer.group(), symlinks=True, dirs_exist_ok=True)
        os.chmod(transfer.group(), 0o755)
    with open(folder + "/arrived", "a") as file:
        file.write("".join(name + "\\n" for name in sorted(os.listdir(transfer.group()))))
answer = answers.get(name, answers["*"])
if transfer and name in ("command", "file", "slurp", "stat") and answer == answers["*"]:
    answer = "REALLY"
if isinstance(answer, list):
    answer = answer[min(before, len(answer) - 1)]
if answer == "REALLY":
    sys.exit(subprocess.run([sys.executable, "-IS", "{runner}"], input=source, text=True).returncode)
while answer == "DRIP":
    sys.stdout.write(" ")
    sys.stdout.flush()
    time.sleep(1)
sys.stdout.write(answer if isinstance(answer, str) else json.dumps(answer))
"""
GPUCHECK = """#!/bin/sh
# Everything but the making of a bundle, which would download.
case "$1 $2" in "bundle make") echo made; exit 0;; esac
exec {gpucheck} "$@"
"""
DEVICES = ("15f8", "2684", "2330", "20b0")
OS = {"id": "ubuntu", "version": "22.04", "name": "Ubuntu 22.04"}
MISSING: Any = object()


def facts(host: str, number: int = 0) -> dict[str, Any]:
    """Facts of a host; each number has a GPU set, and so a group, of its own."""
    gpu = DEVICES[number % len(DEVICES)]
    gpus = [{"bus_id": f"0000:{bus:02x}:00.0", "device_id": gpu} for bus in range(1, 2 + number // len(DEVICES))]
    return {"schema": "gpucheck.facts/1", "host": host, "os": OS, "arch": "x86_64", "kernel": "5.15.0-1-generic",
            "gpus": gpus, "processes": [], "stand_ins": []}  # fmt: skip


def state(differences: dict[str, list[str]]) -> dict[str, Any]:
    """What plan_state returns."""
    host = {"busy": [], "secure_boot": False, "rivals": [], "archive": None, "foreign": [], "free_bytes": {},
            "headers_missing": [], "refusals": [], "kernel": "5.15", "driver": {}, "bundle_there": False,
            "module_stream_planned": True, "requirements_current": True,
            "kernel_lock": {"missing": [], "lifted": [], "kept": []},
            "kernel_arguments": {"add": [], "drop": [], "file_wrong": False, "write": False, "during": {}, "after": {}},
            }  # fmt: skip
    nothing: dict[str, list[str]] = {"packages": [], "missing": [], "stale": []}
    components = dict.fromkeys(("driver", "cuda", "nccl"), nothing)
    return {"differences": differences, "components": components, "reboot": [], "host": host}


def report(host: str) -> dict[str, Any]:
    """A whole report of a healthy host, made by gpucheck itself."""
    made = subprocess.run(
        [str(BIN / "gpucheck"), "verify", "--simulate", "p100-pcie-x2", "--level", "quick", "--format", "json"],
        capture_output=True, text=True, check=False, timeout=CALL_S,
    )  # fmt: skip
    return {**json.loads(made.stdout), "host": host}


def plain_result(name: str) -> dict[str, Any]:
    """The smallest result that fits a module's documentation."""
    empty = {"str": "", "list": [], "dict": {}, "int": 0, "float": 0, "bool": False, "path": ""}
    known = controller().fields(PLUGINS / f"modules/{name}.py")
    given = {field: empty[row["type"]] for field, row in known.items() if row["returned"] in ("success", "always")}
    return {"changed": False, **given}


def honest(host: str, number: int, sound: dict[str, Any]) -> dict[str, Any]:
    """What a host that is sound returns to each module. It lacks NCCL, and has it once it is installed."""
    names = [path.stem for path in (PLUGINS / "modules").glob("*.yml")]
    back = {"schema": "gpucheck.plan/1", "group": "before", "package_manager": "apt", "repositories": [],
            "stack": {"torch": None}, "components": {}, "files": []}  # fmt: skip
    fresh = facts(host, number)
    missing = state({"nccl": ["libnccl2 is missing"]})
    packages = [{"name": "libnccl2", "version": "2", "arch": "amd64", "file": "libnccl2.deb", "sha256": "0" * 64,
                 "bytes": 3}]  # fmt: skip
    known = {name: plain_result(name) for name in names}
    return {
        **known,
        "*": {"changed": False, "rc": 0, "stdout": "", "stderr": ""},
        "gpu_facts": {
            "changed": False,
            "facts": fresh,
            "recorded": "",
            "requirements": "",
            "state": {},
            "clock_ahead_s": 0,
            "python": "3.11.2",
            "plan": {**back, "group": "now"},
            "way_back": back,
        },
        "plan_state": missing,
        "planned_packages": {
            **known["planned_packages"],
            "changed": True,
            **state({}),
            "host": {**missing["host"], "kernels": []},
        },
        "gpu_verify": {"changed": False, "status": 0, "report": json.dumps({**sound, "host": host})},
        "bundle_packages": {
            "changed": False,
            "packages": packages,
            "not_offered": [],
            "modules": [],
            "metadata": [],
            "python": {"version": "3.10.0", "glibc": "2.35", "machine": "x86_64"},
        },
    }


class Site:
    """A controller with an inventory of hosts that say what they are given to say, in a folder of its own."""

    def __init__(self, folder: Path, sound: dict[str, Any], *, apart: bool = False, method: str = "") -> None:
        """sound: a report. apart: every host has a group of its own, so that each collects for a bundle.

        method: how files travel over SSH: sftp, scp or piped. Without it, hosts have Ansible's local connection.
        """
        self.folder, self.sound, self.apart, self.method = folder, sound, apart, method
        for name in ("home", "tmp", "hosts", "out"):
            (folder / name).mkdir(parents=True)
        (folder / "stack.yml").write_text("schema: gpucheck.spec/1\n")
        self.gpucheck = script(folder / "gpucheck", GPUCHECK.format(gpucheck=BIN / "gpucheck"))
        self._wheel()
        self.hosts: dict[str, dict[str, Any]] = {}
        if method:
            (folder / "hosts/keys").mkdir()
            self.ssh = ssh_host.Hosts(folder / "hosts/keys")

    def _wheel(self) -> None:
        """A wheel in the place of this source's, so that none is built."""
        wheel, source = action("python_wheel"), PLAYBOOKS.parent
        digest = wheel.digest_of(source, wheel.sources(source, "gpucheck"))
        place = self.folder / f"out/build/wheels/{digest[:16]}"
        place.mkdir(parents=True)
        (place / "gpucheck_cluster-1-py3-none-any.whl").touch()

    def host(self, name: str, shell: str = "", **answers: Any) -> None:
        """Add a host. answers: by module, what it returns in place of a sound result; text is printed as it is.

        "REALLY" runs the module, "DRIP" never ends; of a list, each call returns the next. shell: what its login shell
        does before any command, where it has SSH.
        """
        place = self.place(name)
        (place / "brings/packages").mkdir(parents=True)
        (place / "brings/packages/libnccl2.deb").write_text("deb")
        number = len(self.hosts) if self.apart else 0
        given = {**honest(name, number, self.sound), **answers}
        (place / "answers.json").write_text(json.dumps(given))
        python = script(place / "python", INTERPRETER.format(python=sys.executable, runner=RUNNER))
        reached = self.ssh.variables(place, shell) if self.method else {"ansible_connection": "local"}
        self.hosts[name] = {**reached, "ansible_become": False, "ansible_python_interpreter": python}

    def bring(self, name: str, files: dict[str, Any]) -> None:
        """Replace what a host collects: content by path, a link as a list with its target."""
        shutil.rmtree(self.place(name) / "brings")
        (self.place(name) / "brings").mkdir()
        for path, content in files.items():
            target = self.place(name) / "brings" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                target.write_text(content)
            else:
                target.symlink_to(content[0])

    def place(self, name: str) -> Path:
        """The folder of a host: brings is what it collects for a bundle."""
        return self.folder / "hosts" / hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    def asked(self, name: str, file: str = "asked") -> list[str]:
        """The modules that a host was asked to run, in their order. arrived: the files in its transfer folder."""
        path = self.place(name) / file
        return path.read_text().split() if path.exists() else []

    def run(self, playbook: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """One of the project's playbooks, as make starts it."""
        folder = self.folder
        site = {"stack_spec": f"{folder}/stack.yml", "stack_lock": f"{folder}/out/stack.lock.yml",
                "build_dir": f"{folder}/out/build", "reports_dir": f"{folder}/out/reports",
                "gpucheck_controller_executable": self.gpucheck}  # fmt: skip
        (folder / "hosts.json").write_text(json.dumps({"gpu": {"hosts": self.hosts, "vars": site}}))
        env = {"PATH": f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": f"{folder}/home", "TMPDIR": f"{folder}/tmp",
               "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_PIPELINING": "1",
               "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": f"{folder}/tmp/ansible",
               "ANSIBLE_REMOTE_TMP": f"{folder}/tmp/remote", "ANSIBLE_DEPRECATION_WARNINGS": "0"}  # fmt: skip
        if self.method:
            env.update(self.ssh.environment(self.method))
        try:
            return subprocess.run(
                [ANSIBLE, "-i", f"{folder}/hosts.json", "-e", f"reports_dir={folder}/out/reports", *arguments,
                 str(PLAYBOOKS / playbook)],
                cwd=folder, env={**env, **environment}, capture_output=True, timeout=CALL_S, check=False, text=True,
                errors="backslashreplace",
            )  # fmt: skip
        finally:
            if self.method:
                self.ssh.close()
            # Of hosts that lied about what they had made.
            for made in folder.glob("hosts/*/transfers"):
                for path in made.read_text().split():
                    shutil.rmtree(path, ignore_errors=True)

    def stray(self) -> list[str]:
        """Files that are where no run may write: next to the run's own folders, in HOME, in the project."""
        mine = ("hosts/", "out/build/", "out/reports/", "tmp/")
        known = ("hosts.json", "stack.yml", "gpucheck", "out/stack.lock.yml")
        here = [str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if not path.is_dir()]
        return sorted(name for name in here if name not in known and not name.startswith(mine))

    def document(self, name: str) -> Any:
        """A JSON file below the run's output."""
        return json.loads((self.folder / "out" / name).read_text())


def spoilt(result: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy of a result with one place changed; MISSING takes it away."""
    made = copy.deepcopy(result)
    inner: Any = made
    for key in path[:-1]:
        inner = inner[key]
    if value is MISSING:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return made
