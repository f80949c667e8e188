"""What goes wrong in the middle of a change: steps x faults, then convergence and the way back.

The tests run in the order they stand in: each needs the state of the one before. What each fault meets stands at its
test, and in the table that the run ends with; further rows come from test_provision, test_provision_refused, test_scale
and test_interruption.
"""

import re

import pytest

from tests.lab.changes import OLD, has_other_set, rolled_back
from tests.lab.e2e import (
    HOSTS,
    INVENTORY,
    LAB,
    container,
    docker,
    driver_versions,
    finished,
    held,
    installed,
    on_host,
    provision_json,
    start,
    until,
    with_spec,
)

pytestmark = pytest.mark.more_labs

# /dev is the one small file system of a container: 64 MiB. apt's archives go there, and it is filled up.
ARCHIVES = "/var/cache/apt/archives"
FILL = f"""mv {ARCHIVES} {ARCHIVES}.kept && mkdir -p /dev/archives/partial && ln -s /dev/archives {ARCHIVES}
cat /dev/zero >/dev/filler 2>/dev/null || :"""
EMPTY = f"rm -rf {ARCHIVES} /dev/archives /dev/filler && mv {ARCHIVES}.kept {ARCHIVES}"


@pytest.mark.fault("package lists", "the mirror is gone")
def test_a_mirror_that_is_gone_leaves_both_hosts_as_they_are(other_spec, before, reports):
    docker("stop", "--time", "1", f"{LAB}-mirror")
    try:
        run = with_spec(reports, args="--skip-tags verify")
    finally:
        docker("start", f"{LAB}-mirror")

    assert run.status != 0
    for host in HOSTS:
        entry = provision_json(reports)["hosts"][host]
        assert entry["state"] == "failed"
        assert "check the address in stack.yml" in " ".join(entry["failure"].split())
        assert installed(host) == before[host]


@pytest.mark.fault("apt's transaction", "the disk is full")
@pytest.mark.fault("dnf's transaction", "the power goes")
def test_a_full_disk_is_named_while_the_other_host_loses_its_power(other_spec, before, reports):
    """Two faults at once, on two hosts: neither hides the other."""
    on_host("lab-apt", "sh", "-c", FILL)
    running = start("provision", reports, inventory=INVENTORY, args="--skip-tags verify")
    try:
        until(lambda: f" {OLD}-" in " ".join(installed("lab-dnf")), "dnf to have begun its transaction")
        docker("kill", container("lab-dnf"))
        run = finished(running)
    finally:
        docker("start", container("lab-dnf"))
        on_host("lab-apt", "sh", "-c", EMPTY)

    assert run.status != 0
    hosts = provision_json(reports)["hosts"]
    assert hosts["lab-apt"]["state"] == "failed"
    assert re.search("space", hosts["lab-apt"]["failure"])
    assert hosts["lab-dnf"]["state"] in ("unreachable", "failed")
    assert held("lab-apt") >= {"libnvidia-compute-580", "nvidia-dkms-580"}


@pytest.mark.fault("dpkg's transaction", "the power goes, a package is half configured")
def test_the_power_goes_in_the_middle_of_dpkgs_transaction_and_the_other_host_converges(other_spec, reports):
    """The dnf host comes from a transaction that was cut off, and gets to its plan in this run."""
    running = start("provision", reports, inventory=INVENTORY, args="--skip-tags verify")
    unfinished = "dpkg-query -W -f '${db:Status-Abbrev}\\n' | grep -qE '^.[HUFWt]'"
    try:
        until(
            lambda: docker("exec", container("lab-apt"), "sh", "-c", f"{unfinished} && echo yes || echo no") == "yes",
            "dpkg to have a package half configured",
        )
        docker("kill", container("lab-apt"))
        run = finished(running)
    finally:
        docker("start", container("lab-apt"))

    assert run.status != 0
    hosts = provision_json(reports)["hosts"]
    assert hosts["lab-apt"]["state"] in ("unreachable", "failed")
    assert hosts["lab-dnf"]["state"] == "changed"
    assert driver_versions("lab-dnf") == {OLD}


def test_the_next_run_continues_on_the_apt_host(other_spec, reports):
    """After a controller that was killed: test_interruption."""
    run = with_spec(reports)

    assert run.status == 0, run.text
    assert "PASS 2 hosts: 2 pass SIMULATED" in run.plain
    assert provision_json(reports)["hosts"]["lab-apt"]["state"] == "changed"


@pytest.mark.parametrize("host", HOSTS)
def test_after_all_that_the_host_is_exactly_as_planned(other_spec, before, host):
    has_other_set(host, before[host])


@pytest.mark.fault("apt's transaction", "another program holds the lock")
def test_a_lock_that_another_program_holds_is_waited_for_and_rollback_returns_to_the_set_before(
    other_spec, before, reports
):
    """As unattended-upgrades would: apt's lock is held while the rollback reaches it, then let go."""
    holder = (
        "import fcntl,time; f=open('/var/lib/dpkg/lock-frontend','w'); fcntl.lockf(f,fcntl.LOCK_EX); time.sleep(25)"
    )
    docker("exec", "-d", container("lab-apt"), "python3", "-c", holder)

    run = with_spec(reports, "rollback", args="--skip-tags verify")

    rolled_back(run, reports, before)
