"""The other set that tests change the lab's hosts to: an older driver, the other kernel modules, no cuDNN."""

import re
from pathlib import Path

from tests.lab.e2e import HOSTS, Run, driver_versions, held, installed, on_host, provision_json

DRIVER_VERSION = "/run/gpucheck-simulator/root/proc/driver/nvidia/version"
OLD, NEW = "580.95.05", "580.178.04"
OTHER = {"driver": OLD, "kernel_module": "proprietary", "cudnn": "none"}


def flavour(host: str) -> str:
    """Return the licence of the loaded kernel modules, as the driver reports it: open or proprietary."""
    return "open" if "Open Kernel Module" in on_host(host, "cat", DRIVER_VERSION) else "proprietary"


def has_other_set(host: str, before: set[str]) -> None:
    """Fail unless the host has the other set, with every planned package held, and kept all other packages."""
    assert driver_versions(host) == {OLD}
    assert flavour(host) == "proprietary"
    now = {row.split()[0] for row in installed(host)}
    assert not any("cudnn" in name for name in now)
    gone = {row.split()[0] for row in before} - now
    # The compiler came with the open modules, whose build needs it.
    assert all(re.search("cudnn|pinning|firmware|kmod-nvidia-open|gcc-c|g\\+\\+", name) for name in gone), gone
    assert not any("cudnn" in name or NEW in name for name in held(host))
    assert any("nccl" in name for name in held(host))


def rolled_back(run: Run, reports: Path, before: dict[str, set[str]]) -> None:
    """Fail unless the rollback returned every host to the packages before, with one reboot."""
    assert run.status == 0, run.text
    assert provision_json(reports)["playbook"] == "rollback"
    for host in HOSTS:
        assert installed(host) == before[host]
        assert provision_json(reports)["hosts"][host]["state"] == "changed"
        assert provision_json(reports)["hosts"][host]["reboots"] == 1
    assert flavour("lab-dnf") == "open"
