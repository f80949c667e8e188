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
rdma link add rxe1 type rxe netdev v1
# Packets between two interfaces of one host leave by one and arrive by the other.
ip link set lo up; ip address add 10.9.0.1/32 dev v0; ip address add 10.9.0.2/32 dev v1
for one in all v0 v1; do cd /proc/sys/net/ipv4/conf/$one; echo 1 >accept_local; echo 0 >rp_filter; cd - >/dev/null; done
ip neighbour add 10.9.0.2 lladdr $(cat /sys/class/net/v1/address) dev v0 nud permanent
ip rule add pref 10 oif v0 lookup 100; ip route add 10.9.0.2 dev v0 table 100
ip neighbour add 10.9.0.1 lladdr $(cat /sys/class/net/v0/address) dev v1 nud permanent
ip rule add pref 10 oif v1 lookup 101; ip route add 10.9.0.1 dev v1 table 101
ip rule add pref 32765 lookup local; ip rule del pref 0
show network sh -c ".venv/bin/python -m gpucheck network --nics rxe0 --format json 2>/dev/null"
show traffic sh -c ".venv/bin/python -m tests.network.traffic 2>/dev/null"
show devlink .venv/bin/python -c "from gpucheck.host.network import read_reporters; print(read_reporters())"
show devlink-tool sh -c "devlink -j health show"
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


def test_devlink_answers_and_no_emulated_card_has_a_reporter(recorded):
    """Debian's kernel has devlink and not netdevsim, whose reporters can be broken."""
    assert recorded["devlink"] == "{}"
    assert json.loads(recorded["devlink-tool"]) == {"health": {}}


def test_verify_lists_devices_that_are_no_cards_of_gpus(recorded):
    (finding,) = [f for f in json.loads(recorded["verify"])["findings"] if f["check"] == "nic-ports"]

    assert (finding["verdict"], finding["code"]) == ("skip", "network.no-card-of-gpus")
    assert finding["evidence"] == ["rxe0 port 1: active, linkup, 10 Gb/s, ethernet"]


def test_perftest_runs_and_is_read_but_soft_roce_has_no_rate(recorded):
    """An emulated processor may be too busy to move anything within a second: then that is the reason."""
    report = json.loads(recorded["network"].partition("@@")[0])
    rows = {row["operation"]: row for row in report["results"]}

    assert list(rows) == ["write", "read", "send", "latency"]
    assert all(row["value"] or row["note"] == "nothing arrived in the time of the test" for row in rows.values())
    assert rows["latency"]["value"] > 0
    assert report["engine"].startswith("perftest ")
    assert {one["mtu"] for one in report["observations"]["nics"]} == {1024}
    assert {one["check"]: one["verdict"] for one in report["findings"] if one["verdict"] != "unknown"} == {
        "nic-bandwidth": "skip",
        "nic-counters": "pass",
    }


LOUD = ("warn", "fail")


@pytest.fixture(scope="module")
def traffic(recorded):
    """Loud findings by case: check, cause, subject."""
    return {
        name: {(one["check"], one["cause"], one["subject"]) for one in report["findings"] if one["verdict"] in LOUD}
        for name, report in json.loads(recorded["traffic"]).items()
    }


@pytest.mark.parametrize("case", ["1", "5", "corrupted", "delayed"])
def test_packets_that_are_sent_again_are_found_at_both_ends(traffic, case):
    """One that is corrupted fails its checksum, and is lost. Soft-RoCE does not wait for what is 5 ms late."""
    assert traffic[case] == {("nic-counters", "nic-congestion", f"nic:rxe{n}") for n in (0, 1)}


def test_nothing_is_found_without_loss(traffic):
    assert traffic["0"] == set()


def test_an_interface_that_is_taken_down_and_up_is_a_flap(traffic):
    """The other end of the cable loses its carrier, too."""
    assert traffic["flap"] == {("nic-counters", "nic-flap", f"nic:rxe{n}") for n in (0, 1)}


def test_a_device_that_leaves_during_the_run_is_a_finding(traffic):
    assert traffic["left"] == {("nic-bandwidth", "rdma-unavailable", "nic:rxe1")}


def test_nothing_of_the_host_is_changed():
    """Its files are below a layer in memory."""
    assert not Path("/guest").exists()
