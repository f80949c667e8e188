"""Rare ends of a run on a provisioned fleet: refused sources and hosts, a host that hangs, source files of a guide.

The tests run in the order they stand in: each needs the state of the one before, and the last leaves bare hosts.
"""

import re

import pytest
import yaml

from tests.lab.e2e import (
    HOSTS,
    INVENTORY,
    container,
    docker,
    from_bad_copies,
    installed,
    make,
    on_host,
    provision_json,
    with_spec,
)

# Where a person has them who followed NVIDIA's installation guide.
GUIDE = {
    "lab-apt": "/etc/apt/sources.list.d/cuda-ubuntu2204-x86_64.list",
    "lab-dnf": "/etc/yum.repos.d/cuda-rhel9.repo",
}
# From the planned files of a provisioned host.
WRITE = {
    "lab-apt": """cp /usr/share/keyrings/nvidia-cuda.gpg /usr/share/keyrings/cuda-archive-keyring.gpg
sed 's/nvidia-cuda.gpg/cuda-archive-keyring.gpg/' /etc/apt/sources.list.d/nvidia-cuda.list >""",
    "lab-dnf": "sed '/repo_gpgcheck/d' /etc/yum.repos.d/cuda-rhel9-x86_64.repo >",
}


pytestmark = pytest.mark.more_labs


@pytest.fixture(autouse=True)
def _provisioned(first):
    assert first.status == 0, first.text


@pytest.mark.fault("reading the host", "the host is down")
def test_a_host_that_is_down_is_a_row_and_the_next_batch_is_verified(first, reports):
    """The dead host is a batch of its own: Ansible by itself would end the run there."""
    docker("stop", "--time", "2", container("lab-apt"))
    try:
        run = make("verify", reports, inventory=INVENTORY, BATCH="1")
    finally:
        docker("start", container("lab-apt"))

    assert run.status != 0
    assert run.recap("lab-apt")["failed"] == 1
    assert re.search(r"PASS +lab-dnf", run.plain)
    assert re.search(r"UNKNOWN +lab-apt", run.plain)
    assert "lab-apt: unreachable" in run.plain
    assert "merged verdict is UNKNOWN" in run.plain


@pytest.mark.fault("package lists", "a version that no repository has")
def test_a_version_that_no_repository_has_refuses_the_host_and_names_the_nearest(first, reports, spec):
    before = installed("lab-apt")
    spec.write_text(yaml.safe_dump({**yaml.safe_load(spec.read_text()), "driver": "580.178.04-9ubuntu1"}))

    run = with_spec(reports)

    row = provision_json(reports)["hosts"]["lab-apt"]
    assert row["state"] == "refused", run.text
    assert "libnvidia-compute-580=580.178.04-9ubuntu1: no repository has this version" in row["failure"]
    assert "Nearest: 580.178.04-1ubuntu1" in row["failure"]
    assert installed("lab-apt") == before


@pytest.mark.fault("package lists", "a bad signature that the controller cannot see")
def test_a_broken_signature_stops_both_hosts_before_anything_is_installed(first, reports, spec):
    before = {host: installed(host) for host in HOSTS}
    from_bad_copies(spec)

    run = with_spec(reports, args="-e check_repositories=false")

    assert run.status != 0
    for host in HOSTS:
        assert run.recap(host)["failed"] == 1, run.text
        assert installed(host) == before[host]
    assert "signature" in run.text.lower() or "GPG" in run.text


def test_the_next_run_with_the_right_source_converges_and_one_more_changes_nothing(first, reports):
    """make provision as a person calls it: with lab up before, and with verification."""
    run, again = make("provision", reports), make("provision", reports)

    for done in (run, again):
        assert done.status == 0, done.text
        assert "PASS 2 hosts: 2 pass SIMULATED" in done.plain
    assert all(again.recap(host)["changed"] == 0 for host in HOSTS), again.text


@pytest.mark.fault("reading the host", "sudo asks for a password")
def test_sudo_that_asks_for_a_password_is_named(first, reports):
    on_host("lab-apt", "sh", "-c", "mv /etc/sudoers.d /etc/sudoers.kept")
    try:
        run = make("provision", reports)
    finally:
        on_host("lab-apt", "sh", "-c", "mv /etc/sudoers.kept /etc/sudoers.d")

    assert run.status != 0
    assert "sudo without a password" in run.plain
    assert "Traceback" not in run.text
    assert run.recap("lab-dnf")["failed"] == 0


@pytest.mark.fault("verifying", "the host hangs")
def test_a_host_that_hangs_is_a_row_with_the_limit_that_it_ran_into(first, reports):
    program, script = "/opt/gpucheck/venv/bin/gpucheck", "#!/bin/sh\nexec sleep 600\n"
    on_host("lab-apt", "sh", "-c", f"mv {program} {program}.kept; printf '{script}' > {program}; chmod +x {program}")
    try:
        run = make("verify", reports, inventory=INVENTORY, args="-e verify_timeout_s=4", LIMIT="lab-apt")
    finally:
        left = on_host("lab-apt", "sh", "-c", f"mv {program}.kept {program}; pkill -x sleep && echo left || echo gone")

    assert "gone" in left
    assert run.status != 0
    assert re.search(r"UNKNOWN +lab-apt", run.plain)
    assert "gpucheck verify returned no report within verify_timeout_s=4 seconds" in run.plain
    assert "lab-dnf" not in run.plain.split("Merge the reports of this run")[1]


def test_a_host_without_gpus_is_refused_and_the_other_goes_on(first, reports):
    devices = "/run/gpucheck-simulator/root/sys/bus/pci/devices"
    on_host("lab-apt", "sh", "-c", f"mv {devices} {devices}.kept && mkdir {devices}")
    try:
        run = with_spec(reports)
    finally:
        on_host("lab-apt", "sh", "-c", f"rmdir {devices} && mv {devices}.kept {devices}")

    assert run.status != 0
    assert "lab-apt: no NVIDIA GPU on its PCI bus" in run.plain
    assert "Nothing was changed" in run.plain
    assert run.recap("lab-dnf")["failed"] == 0


@pytest.fixture(scope="module")
def guide(before):
    """The contents of source files as NVIDIA's guide has them, on both hosts, beside the planned ones."""
    for host, path in GUIDE.items():
        on_host(host, "sh", "-c", f"{WRITE[host]} {path}")
    return {host: on_host(host, "cat", path) for host, path in GUIDE.items()}


def test_source_files_of_nvidias_guide_are_replaced_and_no_package_moves(guide, before, reports):
    run = with_spec(reports, args="--skip-tags verify")

    assert run.status == 0, run.text
    assert provision_json(reports)["counts"] == {"changed": 2}
    for host, path in GUIDE.items():
        assert "names the same repository" in str(provision_json(reports)["hosts"][host]["changes"])
        assert on_host(host, "sh", "-c", f"ls {path} 2>/dev/null || echo none") == "none"
        assert installed(host) == before[host]


def test_deprovision_brings_the_files_of_the_guide_back(guide, bare, reports):
    run = make("deprovision", reports, inventory=INVENTORY, CONFIRM="yes")

    assert run.status == 0, run.text
    assert {host: {row.split()[0] for row in installed(host)} for host in HOSTS} == {
        host: names - {"gpg-pubkey"} for host, names in bare.items()
    }
    assert {host: on_host(host, "cat", path) for host, path in GUIDE.items()} == guide
