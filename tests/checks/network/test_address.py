"""Addresses of ports: one that differs from its equals is named, and what a site chose for all is not."""

import pytest

from gpucheck.checks.network import address
from tests.checks.judging import PASS, SKIP, WARN, judge
from tests.checks.network.cards import DOWN, card, host, port

ETHERNET = {"link_layer": "ethernet", "lid": 0, "mtu": 4220, "gids": (3,)}


def judged(found):
    return [(finding.verdict, finding.code, finding.subject) for finding in judge(address, found)]


@pytest.mark.parametrize(
    ("usual", "odd", "code"),
    [
        ({}, {"lid": 0}, "network.lid-missing"),
        ({}, {"lid": 65535}, "network.lid-missing"),
        ({"pkeys": (0xFFFF,)}, {"pkeys": (0x8001,)}, "network.pkey-differs"),
        (ETHERNET, {"gids": ()}, "network.gid-missing"),
        (ETHERNET, {"mtu": 1500}, "network.mtu-differs"),
    ],
)
def test_a_port_that_differs_is_named(usual, odd, code):
    healthy = card(port(**usual))

    found = judge(address, host(healthy, healthy, card(port(**usual | odd)), healthy))

    assert [(one.verdict, one.code, one.subject, one.cause) for one in found] == [
        (WARN, code, "nic:0000:24:00.0", "nic-address")
    ]


@pytest.mark.parametrize(
    ("why", "ports"),
    [
        ("a site with small frames", [port(**ETHERNET | {"mtu": 1500})] * 3),
        ("a site without routed addresses", [port(**ETHERNET | {"gids": ()})] * 3),
        ("of two either may be odd", [port(**ETHERNET), port(**ETHERNET | {"mtu": 1500})]),
        ("two and two", [port(pkeys=(1,)), port(pkeys=(1,)), port(pkeys=(2,)), port(pkeys=(2,))]),
        ("not read", [port(**ETHERNET), port(**ETHERNET), port(**ETHERNET | {"mtu": None, "gids": None})]),
        ("a port that is down has no LID", [port(), port(), DOWN]),
    ],
)
def test_what_a_site_chose_passes(why, ports):
    assert judged(host(*map(card, ports))) == [(PASS, None, "host")], why


@pytest.mark.parametrize(
    ("index", "expected"),
    [("3", ["network.gid-index-empty"]), ("5", [None]), ("", [None]), ("x", [None]), ("7", [None])],
)
def test_a_gid_index_that_one_port_lacks_is_named(index, expected):
    """A link that returned has another table."""
    tables = [card(port(**ETHERNET | {"gids": gids})) for gids in ((3, 5), (3, 5), (5,))]

    found = judge(address, host(*tables, environment={"NCCL_IB_GID_INDEX": index}))

    assert [one.code for one in found] == expected


def test_efa_and_hosts_without_cards_are_skipped():
    efa = card(port(link_layer="unknown", lid=0))

    assert judged(host(efa, efa)) == [(SKIP, "network.no-address", "host")]
    assert [verdict for verdict, *_ in judged(host())] == [SKIP]
