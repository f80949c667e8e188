"""Driver packages that are broken on purpose: their script fails, or hangs, or their module cannot be loaded.

Real apt, dpkg, dnf and rpm over real SSH; only the GPUs and their driver are SIMULATED. Both hosts change in one run,
each with a fault of its own. Each comes back to the set before, verified, and in service; with a package that is
repaired the next run goes on. The tests run in the order they stand in: each needs the state of the one before.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.changes import NEW, OLD
from tests.lab.e2e import HOSTS, Run, docker
from tests.lab.own_lab import OwnLab, outcomes
from tests.playbooks.stubs import script

pytestmark = pytest.mark.more_labs

# GPUCHECK_TEST_BROKEN_LAB names a lab that is up, with the older driver; it is left standing.
KEPT = os.environ.get("GPUCHECK_TEST_BROKEN_LAB")
SUBNET = os.environ.get("GPUCHECK_TEST_BROKEN_SUBNET", "10.213.53.0/24")
LAB = OwnLab(KEPT or "gpucheck-broken", SUBNET, options=("--name", KEPT or "gpucheck-broken"))
# Shell in place of what the package's script does, which is DKMS.
FAILS = "echo 'Error! Bad return status for module build'; exit 10"
HANGS = "echo 'Building module'; sleep 3600"
REFUSED = "Unknown symbol in module, or unknown parameter"
LOADS_NOT = f"""@ && for file in /var/lib/gpucheck-lab/modules/*/updates/dkms/nvidia.ko
do echo "refused={REFUSED}" >>$file; done"""
# Longer than a transaction that does not hang takes on a busy machine.
DEADLINE_S = 300
# In the mirror: what its packages are built from is changed, and they are built and signed again.
BREAK = f"""
import json, pathlib, shutil, subprocess, sys
catalogue = pathlib.Path("/srv/build/catalogue.json")
sound = catalogue.with_suffix(".sound")
if not sound.exists():
    shutil.copy(catalogue, sound)
content, broken, without = json.loads(sound.read_text()), json.loads(sys.argv[1]), sys.argv[2]
content["packages"] = [row for row in content["packages"] if row["version"] != without]
for row in content["packages"]:
    if row["version"] == "{NEW}" and "nvidia" in row["name"] and "dkms" in row["name"] and row["kind"] in broken:
        row["on_install"] = broken[row["kind"]].replace("@", row["on_install"])
catalogue.write_text(json.dumps(content))
subprocess.run(["python3", "/srv/build/build_repos.py"], check=True)
"""


def packages_of_mirror(without: str = "", **broken: str) -> None:
    """Build the mirror's packages. broken: what the newer driver's do when they are installed, by kind, deb or rpm."""
    docker("exec", f"{LAB.name}-mirror", "python3", "-c", BREAK, json.dumps(broken), without)


def on_host(host: str, *command: str) -> str:
    return docker("exec", f"{LAB.name}-{host.removeprefix('lab-')}", *command)


def driver(host: str) -> set[str]:
    """Versions of the driver's packages, of the module that the next load gives, and of the one that is loaded."""
    listed = {
        "lab-apt": "dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n' | grep '^.i.*nvidia.*-580 '",
        "lab-dnf": "rpm -qa --qf '%{NAME} %{VERSION}-\\n' | grep -E '^(kmod-)?nvidia-(driver|open|open-dkms) '",
    }[host]
    found = {line.split()[-1].split("-")[0] for line in on_host(host, "sh", "-c", listed).splitlines()}
    loaded = on_host(host, "cat", "/run/gpucheck-simulator/root/sys/module/nvidia/version")
    return {*found, on_host(host, "modinfo", "-F", "version", "nvidia"), loaded}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of all runs. Both hosts have the older driver."""
    made = tmp_path_factory.mktemp("broken")
    script(made / "drain", f'#!/bin/sh\necho "$*" >>{made}/drained\n')
    try:
        if not KEPT:
            LAB.lab("down")
            LAB.lab("up", "--subnet", SUBNET)
            LAB.specify(torch="none", driver=OLD)
            assert provision(made).status == 0
        LAB.specify(torch="none", driver=NEW)
        yield made
    finally:
        packages_of_mirror() if KEPT else LAB.lab("down")


def provision(folder: Path, playbook: str = "provision", **more: Any) -> Run:
    """A run on both hosts, which a program drains and resumes."""
    (folder / "drained").write_text("")
    drain: dict[str, Any] = {
        "drain_with": "script",
        "drain_command": [str(folder / "drain")],
        "max_failing_percent": 100,
    }
    return LAB.provision(folder, playbook=playbook, **drain, **more)


def failures(folder: Path) -> dict[str, str]:
    """Why each host failed; both are back on the older driver and in service."""
    hosts = outcomes(folder)["hosts"]
    drained = (folder / "drained").read_text().splitlines()
    for host in HOSTS:
        assert hosts[host]["state"] == "failed"
        assert hosts[host]["failure"].endswith(
            f"The host is back on the set before (driver {OLD}), which was verified, and in service."
        )
        assert driver(host) == {OLD}
        assert [line for line in drained if host in line] == [f"drain {host}", f"undrain {host}"]
    assert on_host("lab-apt", "dpkg", "--audit") == ""
    return {host: hosts[host]["failure"] for host in HOSTS}


@pytest.mark.fault("apt's transaction", "the script of a package fails")
@pytest.mark.fault("after dnf's transaction", "the driver cannot be loaded")
def test_a_script_that_fails_on_one_host_and_a_module_that_cannot_be_loaded_on_the_other(folder):
    packages_of_mirror(deb=FAILS, rpm=LOADS_NOT)

    assert provision(folder).status != 0
    said = failures(folder)
    assert "Error! Bad return status for module build" in said["lab-apt"]
    assert REFUSED in said["lab-dnf"]


@pytest.mark.fault("apt's and dnf's transaction", "the script of a package hangs")
@pytest.mark.fault("the return", "the repository has the packages no more")
def test_a_script_that_hangs_is_stopped_at_the_deadline_and_the_way_back_needs_no_repository(folder):
    packages_of_mirror(without=OLD, deb=HANGS, rpm=HANGS)

    assert provision(folder, packages_transaction_timeout_s=DEADLINE_S).status != 0
    said = failures(folder)
    assert f"apt-get: stopped, because it did not end within {DEADLINE_S} s" in said["lab-apt"]
    for host in HOSTS:
        assert on_host(host, "sh", "-c", "pgrep -x 'sleep|dpkg|apt-get|dnf' || echo none") == "none"


@pytest.mark.fault("apt's transaction", "the script of a package fails, and nothing returns by itself")
def test_a_package_whose_script_fails_is_replaced_by_the_set_before(folder):
    """What dpkg cannot configure is planned through: mending it would run the same script again."""
    packages_of_mirror(deb=FAILS, rpm=FAILS)
    assert provision(folder, return_on_failure=False).status != 0
    for host in HOSTS:
        assert "The host stays drained" in outcomes(folder)["hosts"][host]["failure"]
    assert "nvidia-dkms-580" in on_host("lab-apt", "dpkg", "--audit")
    LAB.specify(driver=OLD)

    plan = LAB.provision(folder, "--check")
    assert "a package transaction was interrupted: nvidia-dkms-580" in plan.plain
    assert f"nvidia-dkms-580 {NEW}-1ubuntu1 to {OLD}-0ubuntu1" in plan.plain
    run = provision(folder)

    assert run.status == 0, run.text
    assert [driver(host) for host in HOSTS] == [{OLD}, {OLD}]


@pytest.mark.fault("rollback", "the repository has the packages no more")
def test_repaired_packages_are_installed_and_a_rollback_needs_no_repository(folder):
    packages_of_mirror()
    LAB.specify(driver=NEW)
    run = provision(folder)
    assert run.status == 0, run.text
    assert [driver(host) for host in HOSTS] == [{NEW}, {NEW}]
    packages_of_mirror(without=OLD)

    run = provision(folder, "rollback")

    assert run.status == 0, run.text
    assert [driver(host) for host in HOSTS] == [{OLD}, {OLD}]
