"""An image without GPUs, systemd and a running kernel: it gets the plan, and proves itself at its first boot."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.e2e import docker, until
from tests.lab.own_lab import OwnLab

pytestmark = pytest.mark.more_labs

KERNEL = "5.15.0-179-generic"
OWN = OwnLab("gpucheck-image", "10.213.62.0/24")
DECLARED: dict[str, Any] = {"image_hardware": "P100-PCIE-16GB-x2", "image_os": "ubuntu-22.04"}
# The machine below is gone, and with it the stand-in for systemctl: what remains is the distribution's, offline.
SETTLE = f"""
rm -rf /run/gpucheck-simulator
mv /usr/local/bin/systemctl /usr/local/bin/systemctl.away
mkdir -p /lib/modules/{KERNEL}
touch /lib/modules/{KERNEL}/modules.dep
"""


@pytest.fixture(scope="module", autouse=True)
def image() -> Iterator[None]:
    with OWN.fresh():
        OWN.on_host("sh", "-euc", SETTLE)
        yield


def test_the_plan_is_installed_and_nothing_is_started(tmp_path: Path) -> None:
    done = OWN.provision(tmp_path, playbook="image", **DECLARED)

    assert done.status == 0, done.text
    assert OWN.on_host("modinfo", "-F", "version", "nvidia").startswith("580.")
    enabled = OWN.on_host("systemctl", "is-enabled", "nvidia-persistenced.service", "gpucheck-first-boot.service")
    assert enabled.split() == ["enabled", "enabled"]
    assert "nvidia-persistenced" not in OWN.on_host("sh", "-c", "cat /proc/[0-9]*/comm")

    again = OWN.provision(tmp_path, playbook="image", **DECLARED)

    assert again.recap(OWN.host)["changed"] == 0, again.text


def test_the_first_boot_verifies_the_machine_once() -> None:
    OWN.on_host("mv", "/usr/local/bin/systemctl.away", "/usr/local/bin/systemctl")
    docker("restart", "--time", "1", OWN.container)
    report = "/var/lib/gpucheck/first-boot.json"
    until(lambda: "yes" in OWN.on_host("sh", "-c", f"test -s {report} && echo yes || :"), "the first boot has a report")

    found = json.loads(OWN.on_host("cat", report))

    assert found["verdict"] in ("pass", "warn")
    assert len(found["topology"]["gpus"]) == 2
