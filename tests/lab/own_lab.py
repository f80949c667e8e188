"""A lab for one test file alone, and make provision's own command on its hosts."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.lab.e2e import ROOT, Run, docker

ENVIRONMENT = {**os.environ, "ANSIBLE_CONFIG": "playbooks/ansible.cfg"}


class OwnLab(NamedTuple):
    """host: the one that most of the tests use. options: of gpucheck lab up."""

    name: str
    subnet: str
    host: str = "light-001"
    # A light host is quicker if nothing but packages and files matters; there is none with dnf.
    options: tuple[str, ...] = ("--light", "1")

    @property
    def directory(self) -> Path:
        return ROOT / ".lab" / self.name

    @property
    def container(self) -> str:
        return f"{self.name}-{self.host.removeprefix('lab-')}"

    def on_host(self, *command: str) -> str:
        return docker("exec", self.container, *command)

    def lab(self, command: str, *options: str) -> None:
        """Run gpucheck lab up or down; fail with its message."""
        words = [".venv/bin/gpucheck", "lab", command, "--name", self.name, *options]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def up(self, *options: str) -> None:
        self.lab("up", "--subnet", self.subnet, *(options or self.options))

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Start the lab with bare hosts, and remove it at the end."""
        self.lab("down")
        try:
            self.up()
            yield
        finally:
            self.lab("down")

    def specify(self, **values: Any) -> None:
        """Change values of the lab's stack.yml."""
        path = self.directory / "stack.yml"
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **values}))

    def command(self, folder: Path, *options: str, playbook: str = "provision", **variables: Any) -> list[str]:
        """Return a make target's own command. folder: gets reports and build. options: of ansible-playbook."""
        values = {"reports_dir": f"{folder}/reports", "build_dir": f"{folder}/build", **variables}
        words = [".venv/bin/ansible-playbook", "-i", str(self.directory / "inventory.yml"), *options]
        return [*words, "-e", json.dumps(values), f"playbooks/{playbook}.yml"]

    def provision(
        self, folder: Path, *options: str, environment: dict[str, str] | None = None, **variables: Any
    ) -> Run:
        """Run it to its end or its death. environment: in addition to this process's."""
        command, around = self.command(folder, *options, **variables), {**ENVIRONMENT, **(environment or {})}
        return Run(subprocess.run(command, cwd=ROOT, env=around, capture_output=True, text=True, check=False))


def outcomes(folder: Path) -> dict[str, Any]:
    """Return provision.json of the last run."""
    found: dict[str, Any] = json.loads((folder / "reports/provision.json").read_text())
    return found
