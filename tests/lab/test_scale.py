"""A fleet of light hosts with every kind of bad host in it: the run ends, names them, and the others converge.

One light host is provisioned for real; the others are copies of it. Each test starts from a fleet that is as planned.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpucheck.lab.lifecycle import KERNEL
from tests.lab.e2e import Run, docker
from tests.lab.own_lab import OwnLab, outcomes
from tests.playbooks.stubs import script

pytestmark = pytest.mark.more_labs

LAB = OwnLab("gpucheck-light", os.environ.get("GPUCHECK_TEST_LIGHT_SUBNET", "10.213.49.0/24"))
COUNT = 8
# Of the plan's files one that a host converges on in seconds.
PLANNED_FILE = "/etc/modprobe.d/gpucheck-nouveau.conf"


def on(number: int, *command: str) -> str:
    return docker("exec", f"{LAB.name}-light-{number:03}", *command)


def provision(folder: Path, **variables: Any) -> Run:
    """Provision the light hosts. A host that hangs may take the time limit each time that it is queried."""
    return LAB.provision(folder, environment={"ANSIBLE_TIMEOUT": "4"}, **variables)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    folder: Path = tmp_path_factory.mktemp("light")
    with LAB.fresh():
        first = provision(folder, preflight_minimum_free_gib=1)
        assert first.status == 0, first.text
        LAB.up("--light", str(COUNT))
        # The copies learn their own names.
        second = provision(folder)
        assert second.status == 0, second.text
        yield folder


def run_kernel(number: int, release: str) -> None:
    """Boot a host into a kernel of this release."""
    on(number, "sh", "-c", f"echo {release} >/usr/lib/gpucheck-lab/kernel-release")
    docker("restart", "-t", "0", f"{LAB.name}-light-{number:03}")


def test_light_hosts_are_as_real_as_a_controller_can_see(folder):
    rows = outcomes(folder)

    assert rows["counts"] == {"changed": COUNT - 1, "unchanged": 1}
    assert {row["group"] for row in rows["hosts"].values()} == {"ubuntu-22.04-x86_64-15f8x2"}
    assert on(3, "modinfo", "-F", "version", "nvidia") == "580.178.04"
    report = json.loads((folder / "reports/light-003.json").read_text())
    assert (report["verdict"], report["simulated"], len(report["topology"]["gpus"])) == ("pass", True, 2)


@pytest.mark.fault("the whole run, 8 hosts", "two are down, one hangs, one has no headers")
def test_bad_hosts_are_named_and_the_others_converge(folder):
    """Two are down, one hangs, one has a kernel without headers; the others have something to do."""
    for number in range(1, COUNT + 1):
        on(number, "rm", PLANNED_FILE)
    run_kernel(6, "5.15.0-999-generic")
    docker("stop", "-t", "0", f"{LAB.name}-light-002", f"{LAB.name}-light-005")
    docker("pause", f"{LAB.name}-light-004")
    try:
        run = provision(folder, max_failing_percent=50)
    finally:
        docker("unpause", f"{LAB.name}-light-004")
        docker("start", f"{LAB.name}-light-002", f"{LAB.name}-light-005")
        run_kernel(6, KERNEL)

    rows = outcomes(folder)["hosts"]
    assert run.status == 2, run.text
    good = ("light-001", "light-003", "light-007", "light-008")
    assert {name: rows[name]["state"] for name in good} == dict.fromkeys(good, "changed")
    assert {name: rows[name]["state"] for name in ("light-002", "light-004", "light-005")} == {
        "light-002": "unreachable",
        "light-004": "unreachable",
        "light-005": "unreachable",
    }
    assert rows["light-006"]["state"] == "refused"
    assert "no package source offers linux-headers-5.15.0-999-generic" in " ".join(rows["light-006"]["failure"].split())
    assert "UNKNOWN 8 hosts: 4 unknown, 4 pass SIMULATED" in run.plain


@pytest.mark.fault("the whole run, 8 hosts", "the power of the first batch goes in its change")
def test_a_first_batch_that_is_lost_stops_the_rollout(folder, tmp_path):
    """The first batch is one host, and its power goes when its change has begun."""
    assert provision(folder).status == 0
    for number in (1, 2):
        on(number, "rm", PLANNED_FILE)
    text = f'#!/bin/sh\n[ "$1 $2" = "drain light-001" ] && docker stop -t 0 {LAB.name}-light-001\nexit 0\n'
    drain = script(tmp_path / "drain", text)
    try:
        run = provision(folder, batch=1, drain_with="script", drain_command=[drain], max_failing_percent=50)
    finally:
        docker("start", f"{LAB.name}-light-001")

    rows = outcomes(folder)["hosts"]
    assert run.status != 0
    assert (rows["light-001"]["state"], rows["light-002"]["state"]) == ("unreachable", "stopped")
    assert f"UNKNOWN {COUNT} hosts: 2 unknown, {COUNT - 2} pass SIMULATED" in run.plain
    assert "light-001: lost during the run" in run.plain
    assert provision(folder).status == 0
