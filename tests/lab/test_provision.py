"""From nothing to the merged report through the README's own commands, and every way an operator's night goes wrong.

One lab of its own beside the user's. The tests run in the order they stand in: each needs the state of the one before.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.shell import Run, Shell

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
LAB = "gpucheck-e2e"
SUBNET = "10.213.43.0/24"
HOSTS = ("lab-apt", "lab-dnf")
GPUS = {"lab-apt": 2, "lab-dnf": 8}


def make(target: str, reports: Path, *, inventory: Path | None = None, **more: str) -> Run:
    words = ["make", target, f"LAB={LAB}", f"REPORTS={reports}", f"ARGS=-e build_dir={reports.parent}/build"]
    words += [f"INVENTORY={inventory}"] if inventory else []
    environment = {**os.environ, "GPUCHECK_LAB_SUBNET": SUBNET, **more}
    return Run(subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False))


def shell() -> Shell:
    return Shell(ROOT / ".lab" / LAB)


def on_host(host: str, *command: str) -> str:
    words = ["docker", "exec", f"{LAB}-{host.removeprefix('lab-')}", *command]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def boots(host: str) -> int:
    return int(on_host(host, "cat", "/var/lib/gpucheck-lab/boots"))


def packages(host: str) -> str:
    return on_host(
        host, "sh", "-c", "dpkg-query -W -f '${Package} ${Version}\\n' '*nvidia*' '*nccl*' || rpm -qa | sort"
    )


def report(reports: Path, host: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((reports / f"{host}.json").read_text())
    return answer


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> Iterator[Path]:
    make("lab-down", tmp_path_factory.mktemp("none"))
    yield tmp_path_factory.mktemp("e2e") / "reports"
    make("lab-down", tmp_path_factory.mktemp("none"))


@pytest.fixture(scope="module")
def first(reports) -> Run:
    return make("provision", reports)


@pytest.fixture
def wish(reports) -> Iterator[Path]:
    """The lab's stack.yml, put back afterwards."""
    path = ROOT / ".lab" / LAB / "stack.yml"
    kept = path.read_text()
    yield path
    path.write_text(kept)


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


def test_check_mode_on_a_converged_host_changes_nothing(first, reports):
    words = [".venv/bin/ansible-playbook", "-i", f".lab/{LAB}/inventory.yml", "playbooks/provision.yml", "--check"]
    done = Run(
        subprocess.run(
            [*words, "-e", f"build_dir={reports.parent}/build"],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_CONFIG": "playbooks/ansible.cfg"},
            capture_output=True,
            text=True,
            check=False,
        )
    )

    assert done.status == 0, done.text
    assert all(done.recap(host)["changed"] == 0 for host in HOSTS)


def test_verify_alone_repeats_the_proof(first, reports):
    shutil.rmtree(reports)

    again = make("verify", reports)

    assert again.status == 0, again.text
    assert "PASS 2 hosts: 2 pass SIMULATED" in again.plain
    assert {path.stem for path in reports.glob("*.json")} == set(HOSTS)


def test_both_hosts_train_as_one(first):
    """Four ranks over the network between the hosts; each host reports all of them, and the same of them."""
    smoke = "smoke --framework torch --steps 10 --format json --nodes 2 --rendezvous"
    answers = shell().on_all(*smoke.split(), f"{shell().addresses[HOSTS[0]]}:29500")

    assert [answer["host"] for answer in answers] == list(HOSTS)
    one, other = (answer["outcomes"][0] for answer in answers)
    assert one["world_size"] == other["world_size"] == 4
    assert one["backend"] == "gloo"
    assert one["summed_steps"] == 10
    assert one["references"][0]["max_abs_difference"] < 1e-6
    assert one["checkpoints"] == other["checkpoints"]
    assert {len(set(check["parameters"])) for check in one["checkpoints"]} == {1}, "all four ranks hold the same"


def test_collectives_over_both_hosts_are_exact(first):
    collectives = "collectives --sizes 64K --format json --nodes 2 --master"
    answers = shell().on_all(*collectives.split(), f"{shell().addresses[HOSTS[0]]}:29501")

    assert [answer["host"] for answer in answers] == list(HOSTS)
    assert all((answer["ranks"], answer["nodes"], answer["verdict"]) == (4, 2, "pass") for answer in answers)
    assert {(row["checked"], row["wrong"]) for answer in answers for row in answer["results"]} == {(7, 0)}
    assert answers[0]["results"] == answers[1]["results"], "the slowest rank's time counts, on every host"


def test_a_broken_signature_stops_both_hosts_before_anything_is_installed(first, reports, wish):
    """The mirror's `bad` copies are signed with another key than the one they are announced with."""
    before = {host: packages(host) for host in HOSTS}
    text = yaml.safe_load(wish.read_text())
    for repository in text["repositories"].values():
        repository["url"] = re.sub(r"(http://[^/]+)/", r"\1/bad/", repository["url"])
    wish.write_text(yaml.safe_dump(text))

    run = with_wish(reports)

    assert run.status != 0
    for host in HOSTS:
        assert run.recap(host)["failed"] == 1, run.text
        assert packages(host) == before[host]
    assert "signature" in run.text.lower() or "GPG" in run.text


def with_wish(reports: Path) -> Run:
    """Provision without `lab up`, which would write the lab's own stack.yml again."""
    return make("provision", reports, inventory=ROOT / ".lab" / LAB / "inventory.yml")


def test_the_next_run_with_the_right_source_converges(first, reports):
    run = make("provision", reports)

    assert run.status == 0, run.text
    assert "PASS 2 hosts: 2 pass SIMULATED" in run.plain


def test_a_malformed_wish_is_one_message_before_any_host_is_changed(first, reports, wish):
    wish.write_text(wish.read_text() + "cudda: auto\n")

    run = with_wish(reports)

    assert run.status != 0
    assert "cudda" in run.plain
    assert "did you mean" in run.plain.lower()
    assert "Traceback" not in run.text


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


def test_a_host_that_is_down_is_a_row_and_the_other_is_verified(first, reports):
    subprocess.run(["docker", "stop", "--time", "2", f"{LAB}-dnf"], check=True, capture_output=True)
    try:
        run = make("verify", reports, inventory=ROOT / ".lab" / LAB / "inventory.yml")
    finally:
        subprocess.run(["docker", "start", f"{LAB}-dnf"], check=True, capture_output=True)

    assert run.status != 0
    assert run.recap("lab-dnf")["unreachable"] == 1
    assert re.search(r"PASS +lab-apt", run.plain)
    assert re.search(r"UNKNOWN +lab-dnf", run.plain)
    assert "unreachable" in run.plain


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
