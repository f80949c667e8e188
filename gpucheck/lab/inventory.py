"""What Ansible and ssh need to reach the lab: inventory, known hosts, and the lab's own specification."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gpucheck.lab import catalogue
from gpucheck.lab.images import Flavour
from gpucheck.lab.model import HOSTS, HostSpec, Lab
from gpucheck.processes.atomic import SHARED, write_atomic

# The lab's packages and wheels take 1 GiB a host; NVIDIA's own, which they replace, take ten times as much.
FREE_GIB = 2
# All hosts of a lab share the processors and the disk of one machine, on which much else may run.
LIMIT_S = 3600
# The boot id is the engine's machine's, the same before and after: PID 1's start time is the container's own.
BOOT_TIME_COMMAND = "cut -d' ' -f22 /proc/1/stat"


def inventory(lab: Lab, flavour: Flavour, hosts: Sequence[HostSpec] = HOSTS, **more: Any) -> dict[str, Any]:
    """The inventory: group ``gpu`` with a child group for each kind of host. more: additional variables."""
    known_hosts = shlex.quote(str(lab.directory / "known_hosts"))
    children: dict[str, dict[str, dict[str, Any]]] = {}
    for host in hosts:
        children.setdefault(host.group, {"hosts": {}})["hosts"][host.name] = {
            "ansible_host": str(lab.ip(host)),
            "gpucheck_python": "python3.11" if (flavour, host.image) == ("real", "dnf-host") else "python3",
        }
    wheels = f"http://{lab.mirror_ip}/wheels/"
    variables = {
        "ansible_user": "ops",
        "ansible_ssh_private_key_file": str(lab.directory / "id_ed25519"),
        "ansible_ssh_common_args": (
            f"-o UserKnownHostsFile={known_hosts} -o GlobalKnownHostsFile=/dev/null "
            "-o StrictHostKeyChecking=yes -o IdentitiesOnly=yes"
        ),
        "ansible_python_interpreter": "/usr/bin/python3",
        "reboot_boot_time_command": BOOT_TIME_COMMAND,
        "stack_spec": str(lab.directory / "stack.yml"),
        "stack_lock": str(lab.directory / "stack.lock.yml"),
        "gpucheck_pip_args": ["--no-index", "--find-links", wheels, "--trusted-host", str(lab.mirror_ip)],
        "preflight_minimum_free_gib": FREE_GIB,
        "quick_verify_timeout_s": LIMIT_S,
        "verify_timeout_s": LIMIT_S,
        **more,
    }
    return {"gpu": {"vars": variables, "children": children}}


def stack_spec(lab: Lab, key_fingerprint: str, torch_version: str) -> dict[str, Any]:
    """The lab's stack.yml: NVIDIA's repositories are the mirror's, and the driver is of a branch that it has."""

    def mirrored(path: str) -> dict[str, str]:
        url = f"http://{lab.mirror_ip}/{path}/"
        key = {"key_url": f"{url}{catalogue.KEY_NAME}", "key_fingerprint": key_fingerprint}
        return {"url": url, **key, "signed": "both"}

    return {
        "driver": "580",
        "torch": torch_version,
        "tensorflow": "none",
        "repositories": {
            "nvidia-cuda": mirrored("compute/cuda/repos/{distro}/{arch}"),
            "nvidia-container-toolkit": mirrored("libnvidia-container/stable/{distro}/{arch}"),
        },
    }


def known_hosts(keys: Mapping[str, str]) -> str:
    return "".join(f"{address} {key}\n" for address, key in sorted(keys.items()))


def dump(content: dict[str, Any], comment: str) -> str:
    """YAML with a line that names its writer."""
    return f"# {comment}\n{yaml.safe_dump(content, sort_keys=False, width=120)}"


def write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_atomic(path, text.encode(), mode=SHARED)


def write_stack_spec(directory: Path, text: str) -> None:
    """Write stack.yml if the lab's content changed; until then, what a person changed in it stays."""
    path, written = directory / "stack.yml", directory / ".stack.yml.written"
    if path.exists() and written.exists() and written.read_text(encoding="utf-8") == text:
        return
    write_if_changed(path, text)
    write_if_changed(written, text)
