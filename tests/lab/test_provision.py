"""From nothing to the merged report through the README's own commands, and every way an operator's night goes wrong.

One lab of its own beside the user's. The tests run in the order they stand in: each needs the state of the one before.
"""

import re
import shutil
import subprocess

import pytest
import yaml

from tests.lab.e2e import (
    HOSTS,
    INVENTORY,
    LAB,
    ROOT,
    SUBNET,
    Run,
    boots,
    container,
    docker,
    make,
    on_host,
    packages,
    provision_json,
    report,
    with_wish,
)

pytestmark = pytest.mark.lab

GPUS = {"lab-apt": 2, "lab-dnf": 8}


def test_one_command_takes_two_bare_hosts_to_a_merged_report(first, reports):
    assert first.status == 0, first.text
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


def test_the_second_run_changes_nothing(first, reports):
    second = make("provision", reports)

    assert second.status == 0, second.text
    for host in HOSTS:
        assert second.recap(host)["changed"] == 0, second.text
        assert boots(host) == 2


def test_the_plan_of_a_converged_fleet_changes_nothing(first, reports):
    """make plan: the set of every group, and no word of a change."""
    done = make("plan", reports)

    assert done.status == 0, done.text
    assert all(done.recap(host)["changed"] == 0 for host in HOSTS)
    assert "rocky-9-x86_64-2330x8 (1 host): driver 580.178.04 open kernel modules" in done.plain
    assert "would change" not in done.plain


def test_the_second_run_asks_each_host_once_before_it_knows(first, reports):
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


def test_verify_alone_repeats_the_proof(first, reports):
    shutil.rmtree(reports)

    again = make("verify", reports)

    assert again.status == 0, again.text
    assert "PASS 2 hosts: 2 pass SIMULATED" in again.plain
    assert {path.stem for path in reports.glob("*.json")} == set(HOSTS)


def from_bad_copies(wish):
    """The mirror's `bad` copies are signed with another key than the one they are announced with."""
    text = yaml.safe_load(wish.read_text())
    for repository in text["repositories"].values():
        repository["url"] = re.sub(r"(http://[^/]+)/", r"\1/bad/", repository["url"])
    wish.write_text(yaml.safe_dump(text))


@pytest.mark.fault("package lists", "a bad signature")
def test_a_broken_signature_refuses_both_hosts_before_anything_is_touched(first, reports, wish):
    before = {host: packages(host) for host in HOSTS}
    from_bad_copies(wish)

    run = with_wish(reports)

    assert run.status != 0
    rows = provision_json(reports)["hosts"]
    for host in HOSTS:
        assert rows[host]["state"] == "refused", run.text
        assert "is not the pinned" in rows[host]["failure"]
        assert packages(host) == before[host]


@pytest.mark.fault("package lists", "a version that no repository has")
def test_a_version_that_no_repository_has_refuses_the_host_and_names_the_nearest(first, reports, wish):
    before = packages("lab-apt")
    wish.write_text(yaml.safe_dump({**yaml.safe_load(wish.read_text()), "driver": "580.178.04-9ubuntu1"}))

    run = with_wish(reports)

    row = provision_json(reports)["hosts"]["lab-apt"]
    assert row["state"] == "refused", run.text
    assert "libnvidia-compute-580=580.178.04-9ubuntu1: no repository has this version" in row["failure"]
    assert "Nearest: 580.178.04-1ubuntu1" in row["failure"]
    assert packages("lab-apt") == before


@pytest.mark.fault("package lists", "a bad signature that the controller cannot see")
def test_a_broken_signature_stops_both_hosts_before_anything_is_installed(first, reports, wish):
    before = {host: packages(host) for host in HOSTS}
    from_bad_copies(wish)

    run = with_wish(reports, args="-e check_repositories=false")

    assert run.status != 0
    for host in HOSTS:
        assert run.recap(host)["failed"] == 1, run.text
        assert packages(host) == before[host]
    assert "signature" in run.text.lower() or "GPG" in run.text


def test_the_next_run_with_the_right_source_converges(first, reports):
    run = make("provision", reports)

    assert run.status == 0, run.text
    assert "PASS 2 hosts: 2 pass SIMULATED" in run.plain


FORMER = """
cd /opt/gpucheck/venv/lib/python3*/site-packages && mkdir gpucheck-0.1.0.dist-info && touch gpucheck_former.py
printf 'Metadata-Version: 2.1\nName: gpucheck\nVersion: 0.1.0\n' >gpucheck-0.1.0.dist-info/METADATA
printf '%s,,\n' gpucheck_former.py gpucheck-0.1.0.dist-info/METADATA gpucheck-0.1.0.dist-info/RECORD \
    >gpucheck-0.1.0.dist-info/RECORD
rm /opt/gpucheck/requirements.sha256
"""


def test_gpucheck_under_its_former_distribution_name_is_uninstalled(first, reports):
    on_host("lab-apt", "sh", "-c", FORMER)

    run = make("provision", reports, inventory=INVENTORY, args="--skip-tags verify", LIMIT="lab-apt")

    assert run.status == 0, run.text
    left = on_host("lab-apt", "sh", "-c", "ls /opt/gpucheck/venv/lib/python3*/site-packages | grep -i gpucheck")
    assert "former" not in left
    assert "gpucheck-0.1.0" not in left
    assert on_host("lab-apt", "/opt/gpucheck/bin/gpucheck", "--version").startswith("gpucheck, version")


def test_a_malformed_wish_is_one_message_before_any_host_is_changed(first, reports, wish):
    wish.write_text(wish.read_text() + "cudda: auto\n")

    run = with_wish(reports)

    assert run.status != 0
    assert "cudda" in run.plain
    assert "did you mean" in run.plain.lower()
    assert "Traceback" not in run.text


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
        run = with_wish(reports)
    finally:
        on_host("lab-apt", "sh", "-c", f"rmdir {devices} && mv {devices}.kept {devices}")

    assert run.status != 0
    assert "lab-apt: no NVIDIA GPU on its PCI bus" in run.plain
    assert "Nothing was changed" in run.plain
    assert run.recap("lab-dnf")["failed"] == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file or folder"),
        ("all: {hosts: {node01: {ansible_connection: local}}}\n", "no host in group gpu"),
        ("gpu: {hosts: {}}\n", "no host in group gpu"),
    ],
    ids=["missing", "other-group", "empty-group"],
)
def test_an_inventory_that_cannot_be_used_is_one_message(first, reports, tmp_path, content, words):
    inventory = tmp_path / "hosts.yml"
    if content is not None:
        inventory.write_text(content)

    run = make("provision", reports, inventory=inventory)

    assert run.status != 0
    assert words in run.plain
    assert "Traceback" not in run.text


def test_a_taken_subnet_is_named_with_its_owner(first, reports):
    """Another lab in the same subnet: who has it, and what to set."""
    run = Run(
        subprocess.run(
            [".venv/bin/gpucheck", "lab", "up", "--name", "gpucheck-other", "--subnet", SUBNET],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    )

    assert run.status == 64
    assert LAB in run.plain
    assert "GPUCHECK_LAB_SUBNET" in run.plain or "--subnet" in run.plain
