"""Hosts without a network: a bundle made from the lab, the mirror switched off, bare hosts provisioned from it alone.

The tests run in the order they stand in: each needs the state of the one before.
"""

import json
import os
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
    container,
    docker,
    installed,
    make,
    on_host,
    provision_json,
    with_spec,
)

pytestmark = pytest.mark.more_labs

MIRROR = f"{LAB}-mirror"
SKIP = "--skip-tags verify"
RECORD = "/etc/gpucheck/stack.json"


def gpucheck(*words):
    """A gpucheck command of the controller."""
    return subprocess.run([".venv/bin/gpucheck", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def lab_up():
    """The lab, its hosts made anew where they are gone."""
    done = gpucheck("lab", "up", "--name", LAB, "--subnet", SUBNET)
    assert done.returncode == 0, done.stderr


def versions(folder):
    """{system: {package: versions}} of a bundle."""
    systems = json.loads((folder / "bundle.json").read_text())["systems"]
    return {name: system["versions"] for name, system in systems.items()}


@pytest.fixture(scope="module")
def bare(reports):
    """Two bare hosts; gone at the end, so that the next lab up makes them bare again."""
    lab_up()
    for host in HOSTS:
        if on_host(host, "sh", "-c", f"ls {RECORD} 2>/dev/null || :"):
            docker("rm", "--force", "--volumes", container(host))
    lab_up()
    yield {host: installed(host) for host in HOSTS}
    docker("start", MIRROR)
    for host in HOSTS:
        docker("rm", "--force", "--volumes", container(host))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bundles")


@pytest.fixture(scope="module")
def made(bare, reports, folder):
    """The bundle of both groups, and one of the dnf host's alone, collected by hosts that are none of the cluster's."""
    # Of two bundles of a group the older one is rejected: the whole one is used last. Both are made from one lock.
    planned = with_spec(reports, "plan")
    assert planned.status == 0, planned.text
    staged = make("bundle", reports, inventory=staging(folder), BUNDLE=str(folder / "part"), GROUPS="rocky-*")
    whole = with_spec(reports, "bundle", BUNDLE=str(folder / "whole"))
    return whole, staged


def staging(folder):
    """An inventory whose GPU hosts answer nobody, and whose collectors are the lab's hosts under other names."""
    gpu = yaml.safe_load(INVENTORY.read_text())["gpu"]
    machines = [host for child in gpu["children"].values() for host in child["hosts"].values()]
    content = {
        "all": {"vars": gpu["vars"]},
        "gpu": {"hosts": {host: {"ansible_host": "192.0.2.1"} for host in HOSTS}},
        "collectors": {"hosts": {f"staging{n}": machine for n, machine in enumerate(machines)}},
    }
    (folder / "staging.yml").write_text(yaml.safe_dump(content))
    return folder / "staging.yml"


@pytest.fixture(scope="module")
def offline(made):
    """Mirror and wheelhouse are one container, and it is off."""
    docker("stop", "--time", "1", MIRROR)


def test_a_bundle_is_made_and_verifies_and_no_host_has_changed(made, bare, folder):
    for run in made:
        assert run.status == 0, run.text
    for host in HOSTS:
        assert made[0].recap(host)["changed"] == 0
        assert installed(host) == bare[host]
        assert on_host(host, "sh", "-c", "ls -d /var/tmp/gpucheck-* 2>/dev/null || echo none") == "none"

    told = gpucheck("bundle", "verify", str(folder / "whole"), "--format", "json")
    assert told.returncode == 0, told.stderr
    manifest = json.loads(told.stdout)
    assert manifest["simulated"] is True
    assert set(manifest["groups"]) == {"rocky-9-x86_64-2330x8", "ubuntu-22.04-x86_64-15f8x2"}
    found = versions(folder / "whole")
    # What the plan names, what that needs, and the headers of the running kernel.
    assert {"libnccl2", "dkms", "linux-headers-5.15.0-179-generic"} < set(found["ubuntu-22.04-x86_64"])
    assert {"libnccl", "dkms", "kernel-devel"} < set(found["rocky-9-x86_64"])
    assert versions(folder / "part") == {"rocky-9-x86_64": found["rocky-9-x86_64"]}


def test_a_changed_package_is_refused_before_any_host_is_touched(offline, bare, reports, folder):
    broken = folder / "broken"
    shutil.copytree(folder / "whole", broken, copy_function=os.link)
    package = next(broken.glob("ubuntu-*/packages/libnccl2_*.deb"))
    content = package.read_bytes()
    package.unlink()
    package.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    run = with_spec(reports, args=SKIP, BUNDLE=str(broken))

    assert run.status != 0
    assert f"packages/{package.name} was changed" in run.plain
    assert "No host was changed" in run.plain
    assert "Traceback" not in run.text
    assert {host: installed(host) for host in HOSTS} == bare


def test_a_host_whose_group_is_not_in_the_bundle_is_refused_and_the_plan_of_the_other_shown(offline, reports, folder):
    run = with_spec(reports, "plan", BUNDLE=str(folder / "part"))

    assert run.status != 0
    assert re.search(
        "lab-apt: rejected, nothing was changed. the bundle [^ ]* was not made for group ubuntu", run.plain
    )
    assert "GROUPS=ubuntu-22.04-x86_64-15f8x2" in run.plain
    assert run.recap("lab-dnf")["failed"] == 0
    assert "repository: gpucheck-bundle: /etc/yum.repos.d/gpucheck-bundle.repo is missing or different" in run.plain


def test_bare_hosts_are_provisioned_from_the_bundle_with_no_network(offline, bare, reports, folder):
    run = with_spec(reports, args=SKIP, BUNDLE=str(folder / "whole"))

    assert run.status == 0, run.text
    for host in HOSTS:
        assert provision_json(reports)["hosts"][host]["state"] == "changed"
        assert len(installed(host) - bare[host]) > 15
        # The host against its plan, wheels included.
        answer = json.loads(on_host(host, "/opt/gpucheck/bin/gpucheck", "stack", "check", "--format", "json"))
        assert answer["verdict"] == "pass"


def test_the_second_run_changes_nothing(offline, reports, folder):
    run = with_spec(reports, args=SKIP, BUNDLE=str(folder / "whole"))

    assert run.status == 0, run.text
    assert provision_json(reports)["counts"] == {"unchanged": 2}
    assert all(host["tasks_changed"] == [] for host in provision_json(reports)["hosts"].values())


def test_what_is_missing_comes_back_from_the_bundle_on_the_host(offline, reports, folder):
    """A package removed by hand: no source but the bundle could bring it back."""
    on_host("lab-apt", "sh", "-c", "apt-mark unhold libnccl-dev && dpkg --purge libnccl-dev")
    on_host("lab-dnf", "rpm", "--erase", "--nodeps", "libnccl-devel")

    run = with_spec(reports, args=SKIP, BUNDLE=str(folder / "whole"))

    assert run.status == 0, run.text
    assert any(row.startswith("libnccl-dev ") for row in installed("lab-apt"))
    assert any(row.startswith("libnccl-devel ") for row in installed("lab-dnf"))


def test_back_on_the_network_the_hosts_converge_and_the_bundle_goes(offline, reports, folder):
    docker("start", MIRROR)
    before = {host: installed(host) for host in HOSTS}

    run = make("provision", reports, inventory=INVENTORY, args=SKIP)

    assert run.status == 0, run.text
    sources = "ls /etc/apt/sources.list.d /etc/yum.repos.d /var/lib/gpucheck 2>/dev/null || :"
    for host in HOSTS:
        assert provision_json(reports)["hosts"][host]["state"] == "changed"
        assert installed(host) == before[host]
        assert "bundle" not in on_host(host, "sh", "-c", sources)


def test_provisioned_hosts_give_the_same_bundle_as_bare_ones(offline, reports, folder):
    run = with_spec(reports, "bundle", BUNDLE=str(folder / "again"))

    assert run.status == 0, run.text
    assert versions(folder / "again") == versions(folder / "whole")
