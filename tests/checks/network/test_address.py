"""Addresses of ports: one that differs from its equals is named, what a site chose for all is not; NCCL_IB_HCA."""

import pytest
from msgspec.structs import replace

from gpucheck.checks.network import address
from tests.checks.judging import PASS, SKIP, WARN, judge
from tests.checks.network.cards import DOWN, card, host, named, nic, port
from tests.fakes import facts

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


def test_ports_with_two_mtus_and_no_majority_are_one_warning():
    """Half of the rails with the default of 1500: each of the others may be the odd one, but not both are right."""
    small, large = card(port(**ETHERNET | {"mtu": 1500})), card(port(**ETHERNET))

    found = judge(address, host(*(small,) * 4, *(large,) * 4))

    assert [(one.verdict, one.code, one.subject, one.cause) for one in found] == [
        (WARN, "network.mtu-mixed", "host", "nic-address")
    ]
    storage = tuple(nic(n, f"mlx5_{n + 4}", bus_id=f"0000:{n}5:00.0") for n in range(4))
    two_each = facts(pci=(*host(*(small,) * 4).pci, *storage), rdma=named([*(small,) * 4, *(large,) * 4]))
    assert judged(two_each) == [(PASS, None, "host")]


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


# mlx5_0 and mlx5_1 belong to GPUs; mlx5_2 is somewhere else.
CARDS = host(card(), card())
PCI = (*CARDS.pci, nic(7, "mlx5_2", path=("0000:70:00.0",)))


def with_value(value):
    return facts(pci=PCI, rdma=named([card()] * 3), environment={"NCCL_IB_HCA": value})


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("mlx5_0,mlx5_1", None),
        ("=mlx5_0:1,mlx5_1:1", None),
        ("^mlx5_2", None),
        ("^=mlx5_2", None),
        ("mlx5_0", "network.choice-leaves-out"),
        ("^mlx5_0,mlx5_2", "network.choice-leaves-out"),
        ("mlx5", "network.choice-of-others"),
        ("", "network.choice-of-others"),
        ("=mlx5_2", "network.choice-of-others"),
        ("^mlx5_9", "network.choice-of-others"),
        ("=mlx5", "network.choice-not-there"),
        ("mlx5_0,mlx5_1,mlx5_9", "network.choice-not-there"),
        (",,:1", "network.choice-of-others"),
    ],
)
def test_values_as_nccl_reads_them(value, code):
    (finding,) = judge("nic-choice", with_value(value))

    assert finding.code == code
    assert code is None or finding.wanted == "NCCL_IB_HCA==mlx5_0,mlx5_1"


def test_a_name_is_the_beginning_of_names():
    """mlx5_1 also takes mlx5_10."""
    many = tuple(nic(place, f"mlx5_{place}", path=("0000:70:00.0",)) for place in range(2, 11))
    found = facts(pci=CARDS.pci + many, rdma=named([card()] * 11), environment={"NCCL_IB_HCA": "mlx5_0,mlx5_1"})

    (finding,) = judge("nic-choice", found)

    assert (finding.code, finding.values["devices"]) == ("network.choice-of-others", "mlx5_10")


def test_a_port_that_is_down_is_not_asked_for():
    found = host(card(), card(), card(DOWN), environment={"NCCL_IB_HCA": "=mlx5_0,mlx5_1"})

    assert [finding.code for finding in judge("nic-choice", found)] == [None]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("=mlx5_0:1,mlx5_1:1", None),
        ("=mlx5_0,mlx5_1", None),
        ("^mlx5_0:2,mlx5_1:2", None),
        ("=mlx5_0:2,mlx5_1:2", "network.choice-leaves-out"),
        ("=mlx5_0:1,mlx5_1:2", "network.choice-leaves-out"),
        ("^mlx5_0:1", "network.choice-leaves-out"),
    ],
)
def test_a_port_of_the_value_is_the_one_that_jobs_use(value, code):
    """NCCL compares the number too, and takes active ports only; without one it falls back to sockets."""
    two = card(port(), replace(DOWN, number=2))

    (finding,) = judge("nic-choice", host(two, two, environment={"NCCL_IB_HCA": value}))

    assert finding.code == code


def test_without_the_variable_nccl_chooses():
    assert [finding.verdict for finding in judge("nic-choice", CARDS)] == [SKIP]
