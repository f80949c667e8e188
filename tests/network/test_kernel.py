"""RDMA devices of a real kernel: gpucheck reads what rdma and ibstat of Debian print (make test-network).

One machine for all tests: it is set up, its states are recorded one after the other, and it is switched off.
"""

import json
import re
from pathlib import Path

import pytest

from tests.network import machine

pytestmark = pytest.mark.vm
# Two devices at the ends of a cable; one end is unplugged, plugged in again, and a device leaves.
SCRIPT = """
ip link add v0 type veth peer name v1
ip link set v0 up; ip link set v1 up
rdma link add rxe0 type rxe netdev v0; rdma link add rxe1 type rxe netdev v1
record() { facts "$1"; show "$1-rdma" rdma -j link; show "$1-ibstat" ibstat; }
record both
ip link set v1 down; sleep 1
record unplugged
ip link set v1 up; sleep 1
record again
rdma link delete rxe1
record left
show verify sh -c ".venv/bin/python -m gpucheck verify --only nic-ports --format json 2>/dev/null"
"""
SECTIONS = ("both", "unplugged", "again", "left")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    lacking = machine.missing()
    assert lacking is None, f"{lacking} is missing: make test-network installs it"
    return machine.run(tmp_path_factory.mktemp("machine"), SCRIPT)


@pytest.mark.parametrize("section", SECTIONS)
def test_states_are_those_of_rdma(recorded, section):
    ours = [
        (device["name"], port["number"], port["state"], port["physical"])
        for device in machine.facts(recorded[section])
        for port in device["ports"]
    ]
    theirs = [
        (link["ifname"], link["port"], link["state"].lower(), link["physical_state"].lower().replace("_", ""))
        for link in json.loads(recorded[f"{section}-rdma"])
    ]

    assert sorted(ours) == sorted(theirs)
    assert ours


@pytest.mark.parametrize("section", SECTIONS)
def test_rates_are_those_of_ibstat(recorded, section):
    theirs = re.findall(r"^CA '(\w+)'.*?^\t\tRate: (\d+)", recorded[f"{section}-ibstat"], re.MULTILINE | re.DOTALL)
    ours = [(one["name"], f"{one['ports'][0]['rate_gbit_s']:g}") for one in machine.facts(recorded[section])]

    assert sorted(ours) == sorted(theirs)


def test_a_cable_that_is_pulled_shows_at_both_ends(recorded):
    states = {name: [one["ports"][0]["state"] for one in machine.facts(recorded[name])] for name in SECTIONS}

    assert states == {
        "both": ["active", "active"],
        "unplugged": ["down", "down"],
        "again": ["active", "active"],
        "left": ["active"],
    }


def test_verify_lists_devices_that_are_no_cards_of_gpus(recorded):
    (finding,) = [f for f in json.loads(recorded["verify"])["findings"] if f["check"] == "nic-ports"]

    assert (finding["verdict"], finding["code"]) == ("skip", "network.no-card-of-gpus")
    assert finding["evidence"] == ["rxe0 port 1: active, linkup, 10 Gb/s, ethernet"]


def test_nothing_of_the_host_is_changed():
    """Its files are below a layer in memory."""
    assert not Path("/guest").exists()
