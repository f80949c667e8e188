"""What make plan prints at its end: packages with versions, downloads, reboots, drains, what is unconfirmed."""

import json
from pathlib import Path

import pytest
import yaml

from tests.playbooks.hostile import Site, honest, report, state
from tests.playbooks.modules import plugin
from tests.playbooks.planned import PLAN, VERSION

dry_run, dry_run_text = plugin("plugin_utils", "dry_run"), plugin("plugin_utils", "dry_run_text")

SHOWN = Path(__file__).with_name("dry_run.yml")
DKMS, NCCL = f"nvidia-dkms-580={VERSION}", "libnccl2=2.29.3-1+cuda12.9"
GROUP = {
    "group": PLAN["group"],
    "packages": [{"spec": DKMS, "state": "present", "size": 90_000_000},
                 {"spec": NCCL, "state": "present", "size": 200_000_000}],
    "download_bytes": 400_000_000,
}  # fmt: skip
LOADED = {
    "loaded_version": "570.1",
    "loaded_flavour": "open",
    "installed_version": "570.1",
    "installed_flavour": "open",
}


def known(**more):
    """A host with an older driver and without NCCL, whose package sources are set up."""
    compared = state({"driver": [f"nvidia-dkms-580 is 580.95.05-1ubuntu1, planned {VERSION}"], "nccl": ["x"]})
    compared["components"] = {
        "driver": {"packages": [f"nvidia-dkms-580 is 580.95.05-1ubuntu1, planned {VERSION}"]},
        "nccl": {"packages": ["libnccl2 2.29.3-1+cuda12.9 is not installed"]},
    }
    compared["host"]["driver"] = LOADED
    moves = [
        {"verb": "upgrade", "name": "nvidia-dkms-580", "before": "580.95.05-1ubuntu1", "version": VERSION},
        {"verb": "install", "name": "libnccl2", "before": "", "version": "2.29.3-1+cuda12.9"},
        {"verb": "remove", "name": "nvidia-old", "before": "1", "version": ""},
    ]
    prepared = {"transaction": moves, "download_bytes": 290_000_000, "moves_unknown": ""}
    given = {"plan": PLAN, "state": compared, "prepared": prepared, "told": {"downloads": False}, "group": GROUP}
    return {**given, "bundled": False, "drain": None, "simulated": False, "local": False, **more}


def changed(host=None, **parts):
    """How that host compares with its plan, with other parts or details."""
    compared = {**known()["state"], **parts}
    return {**compared, "host": {**compared["host"], **(host or {})}}


def row(**more):
    return dry_run.row_of(known(**more))


NONE = {**LOADED, "loaded_version": None, "loaded_flavour": None}
UNCONFIRMED = [
    {"component": "driver", "spec": DKMS, "because": "x"},
    {"component": "nccl", "spec": NCCL, "because": "x"},
]
UNPLANNED = ["libcudnn9-cuda-13 9.20-1 is no longer planned", "/etc/x is no longer planned"]
# apt installs nvidia-firmware-580-580.178.04, whose name has its version, next to the other one. Without a simulation
# it is not known which of the strays the transaction moves.
STRAYS = changed(host={"strays": ["nvidia-firmware-580-570.1 570.1-1", "nvidia-old 1"]})
NO_STREAM: dict[str, object] = {
    "transaction": [],
    "download_bytes": None,
    "moves_unknown": "the planned module stream is not enabled yet",
}
CASES = {
    "sources are set up": {},
    "sources are not set up": {"prepared": {}},
    "sources are not set up, index not read": {"prepared": {}, "group": {}},
    "sources are not set up, bundle": {"prepared": {}, "bundled": True},
    "sources are not set up, part of the packages": {
        "prepared": {},
        "state": changed(components={"nccl": known()["state"]["components"]["nccl"]}),
    },
    "the simulation failed": {"prepared": NO_STREAM},
    "packages are no longer planned": {"state": changed(differences={"cleanup": UNPLANNED})},
    "packages of another driver version": {"state": STRAYS},
    "packages of another driver version, not simulated": {"state": STRAYS, "prepared": {}},
    "a reboot that is due keeps its reason": {"state": changed(reboot=["nouveau is loaded and uses the GPUs"])},
    "no module is loaded": {"state": changed(host={"driver": NONE})},
    "no module is loaded, its options change": {
        "state": changed(host={"driver": NONE, "wrong_initramfs_files": ["/etc/x"]})
    },
    "kernel arguments change": {"drain": "slurm", "state": changed(differences={"kernel_arguments": ["x"]})},
    "the driver changes and is drained for": {"drain": "slurm"},
    "a library alone takes no drain": {"drain": "slurm", "state": changed(differences={"nccl": ["x"]})},
    "unconfirmed, in the index": {"plan": {**PLAN, "unconfirmed": UNCONFIRMED}},
    "unconfirmed, index not read": {"plan": {**PLAN, "unconfirmed": UNCONFIRMED}, "group": {}},
}


def document():
    rows = {name: row() for name in ("n1", "n2", "n3")}
    rows["n4"] = row(prepared={}, simulated=True)
    done = {"unchanged": 2, "left_out": ["n5"]}
    return {"schema": dry_run.SCHEMA, "hosts": rows, "batches": [["n1"], ["n2", "n3", "n4"]], **done}


def shown():
    """The first case, and of the others what differs from it: parts of the document, and lines of the text.

    Then the text for four hosts, in which those with the same changes share a block.
    """
    found = {}
    for name, more in CASES.items():
        one = row(**more)
        parts = {key: one[key] for key in ("packages_from", "download_bytes", "download_from", "drain")}
        parts.update((label, text.replace("\xa0", " ")) for label, text in dry_run_text.block(one))
        first = next(iter(found.values()), {})
        found[name] = {key: parts.get(key) for key in {**first, **parts} if first.get(key, "") != parts.get(key, "")}
    text = dry_run_text.to_text(document()).replace("\xa0", " ").splitlines()
    assert max(map(len, text)) <= 120
    return {**found, "text": text}


def test_packages_downloads_reboots_and_drains_are_as_recorded():
    """A reviewed table: after an intended change, python -m tests.playbooks.test_dry_run writes it anew."""
    assert shown() == yaml.safe_load(SHOWN.read_text())


def test_host_that_returns_nonsense_is_still_a_row():
    odd = {"differences": {"driver": ["\x1b[2Jx"]}, "components": [], "reboot": "now", "host": 7}
    found = row(state=odd, prepared={"transaction": [7, {"verb": None}], "moves_unknown": ""})

    assert "\x1b" not in json.dumps(dry_run_text.block(found))


def test_nothing_to_do_is_stated_with_the_hosts_that_were_left_out():
    empty = {"schema": dry_run.SCHEMA, "hosts": {}, "batches": []}

    assert dry_run_text.to_text({**empty, "unchanged": 3, "left_out": []}) == "Dry run: nothing to do on 3 hosts."
    text = dry_run_text.to_text({**empty, "unchanged": 0, "left_out": ["a", "b"]})
    assert text == "Dry run: nothing to do on 0 hosts. Rejected or unreachable: a, b."


@pytest.mark.slow
def test_plan_prints_the_dry_run_and_writes_it(tmp_path):
    sound = report("node01")
    site = Site(tmp_path, sound)
    prepared = honest("node01", 0, sound)["planned_packages"]
    moves = [{"verb": "install", "name": "libnccl2", "before": "", "version": "2"}]
    prepared = {**prepared, "changed": False, "transaction": moves, "download_bytes": 5_000_000}
    lacking = state({"nccl": ["libnccl2 2 is not installed"]})
    lacking["components"] = {**lacking["components"], "nccl": {"packages": ["x"], "missing": [], "stale": []}}
    site.host("node01", plan_state=lacking, planned_packages=prepared)
    done = site.run("provision.yml", "--check")

    assert done.returncode == 0, done.stdout
    words = " ".join(done.stdout.split())
    assert "1 host would change node01 install 1 libnccl2 2 differences nccl 1 download 5.0 MB" in words
    found = site.document("reports/plan.json")
    assert found["schema"] == "gpucheck.dry-run/1"
    assert found["batches"] == [["node01"]]


if __name__ == "__main__":
    SHOWN.write_text(yaml.safe_dump(shown(), sort_keys=False, width=120))
