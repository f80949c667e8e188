"""A subnet is nobody else's, and when it is, the message says whose."""

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from gpucheck.lab.containers import ensure_network, refuse_taken, routes
from gpucheck.lab.model import LABEL, Lab, make_lab, parse_subnet
from gpucheck.lab.system import LabUsageError
from gpucheck.model.finding import EXIT_USAGE
from tests.lab.fake_docker import FakeNetwork, fake_docker

TABLE = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
tun0\t00D50A0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
wg0\t0029D50A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""
SUBNET = "10.99.7.0/24"


def lab(subnet=SUBNET):
    return Lab("gpucheck-unit", IPv4Network(subnet), Path("/nowhere"))


def test_routes_are_read_and_the_default_route_is_none():
    """The kernel prints addresses as little-endian words."""
    table = TABLE.replace("00D50A0A\t", "0000000A\t").replace("00FFFFFF\t0\t0\t0\nwg0", "000000FF\t0\t0\t0\nwg0")

    assert routes(table) == [
        (IPv4Network("10.0.0.0/8"), "this machine's route through tun0"),
        (IPv4Network("10.213.41.0/24"), "this machine's route through wg0"),
    ]


def test_a_taken_subnet_names_its_owner_and_a_free_one():
    claims = [(IPv4Network("10.213.41.0/24"), "the Docker network shop_default")]

    with pytest.raises(LabUsageError) as refused:
        refuse_taken(IPv4Network("10.213.0.0/16"), claims)

    assert refused.value.message.splitlines() == [
        "the lab's subnet 10.213.0.0/16 is taken: the Docker network shop_default has 10.213.41.0/24",
        "do: choose another with --subnet 10.213.42.0/24 (or GPUCHECK_LAB_SUBNET=10.213.42.0/24)",
    ]
    assert refused.value.exit_code == EXIT_USAGE


OURS = {LABEL: "gpucheck-unit"}


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (FakeNetwork("shop_default", "10.99.0.0/16"), r"the Docker network shop_default has 10\.99\.0\.0/16"),
        (FakeNetwork("gpucheck-unit", "10.99.8.0/24", OURS), r"is up on 10\.99\.8\.0/24, not on 10\.99\.7\.0/24"),
        (FakeNetwork("gpucheck-unit", "10.98.0.0/16"), "no lab made it"),
    ],
)
def test_a_network_of_another_program_or_subnet_is_left_alone(network, says):
    engine = fake_docker(networks=(network,))

    with pytest.raises(LabUsageError, match=says):
        ensure_network(engine, lab())
    assert engine.network_list == [network]


def test_a_free_subnet_becomes_the_labs_network():
    engine = fake_docker()

    network = ensure_network(engine, lab())

    (made,) = engine.network_list
    assert (made.subnet, made.labels) == (SUBNET, {LABEL: "gpucheck-unit"})
    assert ensure_network(engine, lab()) is network


@pytest.mark.parametrize(
    ("text", "says"),
    [("10.0.0.0/33", "no IPv4 subnet"), ("10.0.0.1/24", "host bits"), ("lab", "no IPv4"), ("10.0.0.0/29", "needs 16")],
)
def test_what_is_no_subnet_is_refused_with_an_example(text, says):
    with pytest.raises(LabUsageError, match=says) as refused:
        parse_subnet(text)
    assert "10.213.41.0/24" in refused.value.message


@pytest.mark.parametrize("name", ["", "Lab", "-x", "a/b", "x" * 60])
def test_a_name_that_containers_cannot_bear_is_refused(name):
    with pytest.raises(LabUsageError, match="lower-case"):
        make_lab(name, SUBNET)
