"""A shell on the lab's hosts, with the inventory's user and keys."""

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

GPUCHECK = "/opt/gpucheck/bin/gpucheck"


class Shell:
    """directory: the lab's, with inventory.yml."""

    def __init__(self, directory: Path) -> None:
        self.known_hosts = directory / "known_hosts"
        group = yaml.safe_load((directory / "inventory.yml").read_text())["gpu"]
        self.variables = group["vars"]
        children = group["children"].values()
        self.addresses = {name: host["ansible_host"] for child in children for name, host in child["hosts"].items()}

    def words(self, host: str, *command: str, known_hosts: Path | None = None) -> list[str]:
        """The ssh command that runs this one on the host."""
        options = self.variables["ansible_ssh_common_args"]
        if known_hosts is not None:
            options = options.replace(str(self.known_hosts), str(known_hosts))
        words = ["ssh", "-i", self.variables["ansible_ssh_private_key_file"], *options.split(), "-o", "BatchMode=yes"]
        return [*words, f"{self.variables['ansible_user']}@{self.addresses[host]}", *command]

    def on_all(self, port: int, *command: str) -> list[dict[str, Any]]:
        """gpucheck on every host at once, which meet at this port of the first: what each reports, as JSON."""
        first, *_ = self.addresses.values()
        meeting = f"GROUP_WORLD_SIZE={len(self.addresses)} MASTER_ADDR={first} MASTER_PORT={port}".split()
        started = [
            subprocess.Popen(
                self.words(host, "env", *meeting, f"GROUP_RANK={rank}", "timeout", "120", GPUCHECK, *command),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, host in enumerate(self.addresses)
        ]
        said = [process.communicate() for process in started]
        assert [process.returncode for process in started] == [0] * len(started), said
        return [json.loads(out) for out, _ in said]
