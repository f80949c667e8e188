"""From nothing to the merged report through the README's own commands, and one run of each kind that ends badly.

One lab of its own. The tests run in the order they stand in: each needs the state of the one before.
test_provision_refused has the rarer ends of a run.
"""

import re

import pytest

from tests.lab.e2e import (
    HOSTS,
    INVENTORY,
    LAB,
    boots,
    docker,
    from_bad_copies,
    installed,
    make,
    on_host,
    provision_json,
    report,
    unproven,
    with_spec,
)

pytestmark = pytest.mark.lab

GPUS = {"lab-apt": 2, "lab-dnf": 8}


def test_one_command_takes_two_bare_hosts_to_a_merged_report(first, reports):
    assert first.status == 0, f"{first.text}\n{unproven(reports)}"
    for host in HOSTS:
        assert first.recap(host)["failed"] == first.recap(host)["unreachable"] == 0
        assert re.search(rf"^PASS +{host} .*SIMULATED", re.sub(r"\x1b\[[0-9;]*m", "", first.text), re.MULTILINE)
    assert "PASS 2 hosts: 2 pass SIMULATED" in first.plain


@pytest.mark.parametrize("host", HOSTS)
def test_each_host_was_rebooted_exactly_once(first, host):
    """Nouveau held the GPUs: one boot to be bare, one to load the driver."""
    assert boots(host) == 2


@pytest.mark.parametrize("host", HOSTS)
def test_the_report_proves_gpus_stack_and_training(first, reports, host):
    answer = report(reports, host)

    assert answer["schema"] == "gpucheck.report/1"
    assert answer["simulated"] is True
    assert len(answer["topology"]["gpus"]) == GPUS[host]
    passed = {finding["check"] for finding in answer["findings"] if finding["verdict"] == "pass"}
    assert {"driver", "inventory", "pcie-link", "stack", "topology", "smoke-ddp"} <= passed
    assert answer["versions"]["driver"] == "580.178.04"
    if host == "lab-dnf":
        assert {"nvlink", "fabric"} <= passed


def test_the_flavour_follows_the_gpus(first):
    """Pascal has no GPU System Processor, so the same branch comes as two module flavours."""
    assert on_host("lab-apt", "cat", "/run/gpucheck-simulator/root/proc/driver/nvidia/version").count("Open") == 0
    assert on_host("lab-dnf", "cat", "/run/gpucheck-simulator/root/proc/driver/nvidia/version").count("Open") == 1


def test_the_second_run_changes_nothing_and_asks_each_host_once_before_it_knows(first, reports):
    """Everything up to the verdict that nothing differs is one module on each host, and the network is off."""
    docker("stop", "--time", "1", f"{LAB}-mirror")
    try:
        run = make("provision", reports, inventory=INVENTORY, args="-v --skip-tags verify")
    finally:
        docker("start", f"{LAB}-mirror")

    assert run.status == 0, run.text
    assert "Read the host in one round trip" in run.plain
    assert "Compare the host with its plan in one round trip" not in run.plain
    assert provision_json(reports)["counts"] == {"unchanged": 2}
    assert all(host["tasks_changed"] == [] for host in provision_json(reports)["hosts"].values())
    for host in HOSTS:
        assert run.recap(host)["changed"] == 0, run.text
        assert boots(host) == 2


@pytest.mark.fault("package lists", "a bad signature")
def test_a_broken_signature_refuses_both_hosts_before_anything_is_touched(first, reports, spec):
    before = {host: installed(host) for host in HOSTS}
    from_bad_copies(spec)

    run = with_spec(reports)

    assert run.status != 0
    rows = provision_json(reports)["hosts"]
    for host in HOSTS:
        assert rows[host]["state"] == "refused", run.text
        assert "is not the pinned" in rows[host]["failure"]
        assert installed(host) == before[host]


def test_an_inventory_that_is_missing_is_one_message(reports, tmp_path):
    """What other inventories are refused for is in tests/playbooks/test_runs."""
    run = make("provision", reports, inventory=tmp_path / "hosts.yml")

    assert run.status != 0
    assert "no such file or folder" in run.plain
    assert "Traceback" not in run.text
