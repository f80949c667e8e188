"""Ports that carry traffic of GPUs: a port that differs from its equals is named, and nothing else is."""

import pytest
from msgspec.structs import replace

from gpucheck.checks.network import ports
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN, WARN, judge
from tests.checks.network.cards import DOWN, UP, card, grace, host, named, nic, port
from tests.fakes import facts

ALIKE = (card(), card(), card())


def judged(found):
    return [(finding.verdict, finding.code, finding.subject) for finding in judge(ports, found)]


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (card(port(state=None)), "network.port-state-unknown"),
        (card(port(rate_gbit_s=None)), "network.port-rate-unknown"),
        (card(unread="no answer within 5 s"), "network.device-unreadable"),
    ],
)
def test_what_was_not_read_is_unknown(broken, code):
    """A port that differs from its equals: test_foreign.py, with the files of another author."""
    assert judged(host(*ALIKE, broken)) == [(UNKNOWN, code, "nic:0000:34:00.0")]


def test_of_two_cards_that_differ_either_may_be_the_odd_one():
    assert judged(host(card(), card(DOWN))) == [(WARN, "network.port-down", "nic:0000:14:00.0")]
    assert judged(host(card(), card(port(rate_gbit_s=200.0)))) == [(WARN, "network.port-slow", "nic:0000:14:00.0")]


def test_slow_ports_in_the_majority_are_named_while_two_show_what_is_possible():
    slow = card(port(rate_gbit_s=200.0))

    assert [code for _, code, _ in judged(host(card(), card(), slow, slow, slow))] == ["network.port-slow"] * 3


@pytest.mark.parametrize("rate", [10.0, 25.0])
def test_infiniband_of_one_lane_is_named_without_an_equal(rate):
    """All cards of a host, or its only one: none is slower than the others."""
    slow = card(port(rate_gbit_s=rate))

    for found in (host(slow), host(slow, slow, slow)):
        assert {(verdict, code) for verdict, code, _ in judged(found)} == {(WARN, "network.port-few-lanes")}
    for other in (port(rate_gbit_s=100.0), port(rate_gbit_s=25.0, link_layer="ethernet")):
        assert [verdict for verdict, *_ in judged(host(card(other), card(other)))] == [PASS]
    assert [verdict for verdict, *_ in judged(host(card(port(rate_gbit_s=20.0), model="MT26428")))] == [PASS]


def test_a_card_without_a_board_is_unknown_where_its_equals_have_one():
    """It would be compared with no other, and a port that is down would pass."""
    unknown = (UNKNOWN, "network.device-unreadable", "nic:0000:34:00.0")
    no_driver_has_one = host(*(card(board=None),) * 3, card(DOWN, board=None))

    assert unknown in judged(host(*ALIKE, card(DOWN, board=None)))
    assert judged(no_driver_has_one) == [(FAIL, "network.port-down", "nic:0000:34:00.0")]


def test_a_replaced_card_of_another_board_that_is_down_is_named():
    """A spare part of the same product may have another PSID: it is equal to no other card."""
    other = card(DOWN, board="MT_0000000838")
    same_switch = host(*ALIKE)
    spare = facts(
        pci=(*same_switch.pci, nic(2, "mlx5_3", path=same_switch.pci[2].path, bus_id="0000:25:00.0")),
        rdma=named([*ALIKE, other]),
    )

    assert judged(host(*ALIKE, other)) == [(WARN, "network.port-odd", "nic:0000:34:00.0")]
    assert [verdict for verdict, *_ in judged(spare)] == [PASS]
    assert [verdict for verdict, *_ in judged(host(*ALIKE, card(port(rate_gbit_s=200.0), board="other")))] == [PASS]


def test_a_host_without_any_active_port_is_one_unknown():
    """It may not be connected yet, or its leaf switch may be off: the host alone does not show which."""
    assert judged(host(card(DOWN), card(DOWN), card(DOWN))) == [(UNKNOWN, "network.no-port-active", "host")]


@pytest.mark.parametrize("count", [1, 3])
def test_ports_with_a_link_that_nobody_made_active_are_connected(count):
    """A cable is there and its switch is on: without a subnet manager no job can use them."""
    waiting = card(port(state="init"))
    mixed = judged(host(waiting, card(DOWN), card(DOWN)))
    found = judged(host(*(waiting,) * count))

    assert [code for _, code, _ in mixed] == ["network.no-port-active", "network.port-without-manager"]
    assert [code for _, code, _ in judged(host(*ALIKE, card(DOWN), card(DOWN)))] == ["network.port-down"] * 2
    assert found == [(WARN, "network.port-without-manager", f"nic:0000:{n}4:00.0") for n in range(count)]


@pytest.mark.parametrize(
    ("why", "found"),
    [
        ("a site on slower switches", host(*(card(port(rate_gbit_s=200.0)) for _ in range(3)))),
        ("rate of a port that is down", host(*ALIKE, card(board="other", model="other"))),
        ("Grace, a card a GPU", grace(*ALIKE, card())),
        ("an only card that is down beside one of another board", host(card(), card(DOWN, board="SIM_OTHER"))),
    ],
)
def test_what_is_normal_passes(why, found):
    assert [verdict for verdict, *_ in judged(found)] == [PASS], why


def test_second_ports_without_a_cable_are_normal():
    """Of a card with two ports, both in one device or each as a function of its own."""
    two = card(UP, port(number=2, state="down", physical="polling"))
    pci = host(*ALIKE).pci
    second = tuple(nic(n, f"mlx5_{n + 3}", function=1) for n in range(3))
    functions = facts(pci=pci + second, rdma=named([*ALIKE, card(DOWN), card(DOWN), card(DOWN)]))

    assert [verdict for verdict, *_ in judged(host(two, two, two))] == [PASS]
    assert [verdict for verdict, *_ in judged(functions)] == [PASS]


@pytest.mark.parametrize(
    ("device", "changes"),
    [(card(DOWN, is_virtual=True), {}), (card(DOWN, kind="switch"), {}), (card(DOWN), {"device_id": "101e"})],
    ids=["virtual function", "port of a switch", "virtual function of a guest"],
)
def test_what_is_no_card_of_a_host_is_left_out(device, changes):
    found = host(*ALIKE)
    pci = (*found.pci, nic(2, "mlx5_3", function=3, **changes))

    assert [v for v, *_ in judged(facts(pci=pci, rdma=named([*ALIKE, device])))] == [PASS]


def test_virtual_functions_of_a_guest_are_its_cards():
    """As on ND A100 v4 and ND H100 v5 of Azure; an only one is for the front end."""
    (finding,) = judged(grace(*ALIKE, card(DOWN), device_id="101e"))

    assert finding[:2] == (FAIL, "network.port-down")
    assert [v for v, *_ in judged(grace(card(DOWN), device_id="101e"))] == [SKIP]


def test_cards_whose_use_is_not_known_are_listed_and_not_judged():
    """A card for storage or management may be down."""
    pci = (*host(*ALIKE).pci, nic(7, "mlx5_3", path=("0000:70:00.0",)))
    aside = facts(pci=pci, rdma=named([*ALIKE, card(DOWN)]))
    none = facts(pci=pci[:3] + pci[-1:], rdma=named([card(DOWN)] * 4)[3:])

    assert [verdict for verdict, *_ in judged(aside)] == [PASS]
    (finding,) = judge(ports, none)
    assert (finding.verdict, finding.code) == (SKIP, "network.no-card-of-gpus")
    assert finding.evidence == ("mlx5_3 port 1: down, polling, infiniband",)


def test_ports_whose_driver_has_one_answer_are_no_evidence():
    """EFA reports ACTIVE and 100 Gb/s whatever the card does."""
    found = host(*(card(port(link_layer="unknown"), firmware=None),) * 3)
    efa = tuple(replace(one, vendor_id="1d0f") if one.is_network_card else one for one in found.pci)

    assert judged(facts(pci=efa, rdma=found.rdma)) == [(SKIP, "network.port-state-fixed", "host")]
    unread = named([*found.rdma[:2], card(unread="no answer within 5 s")])
    assert judged(facts(pci=efa, rdma=unread)) == [(UNKNOWN, "network.device-unreadable", "nic:0000:24:00.0")]


def test_hosts_without_rdma_and_with_one_unused_port_are_skipped():
    assert judged(facts()) == [(SKIP, "network.no-rdma-device", "host")]
    assert judged(host(card(DOWN))) == [(SKIP, "network.no-port-in-use", "host")]
