"""Firmware of network cards: equal boards run the same."""

import pytest
from msgspec.structs import replace

from gpucheck.checks.network import firmware
from tests.checks.judging import PASS, SKIP, UNKNOWN, WARN, judge
from tests.checks.network.cards import card, host
from tests.fakes import facts

OLD = {"firmware": "28.36.1010"}


def test_the_card_that_differs_is_named():
    (finding,) = judge(firmware, host(card(), card(), card(**OLD)))

    assert (finding.code, finding.subject) == ("network.firmware-differs", "nic:0000:24:00.0")
    assert (finding.seen, finding.wanted) == ("28.36.1010", "28.39.2048")


def requesting(*sizes):
    """Equal cards that ask for so many bytes at once."""
    found = host(*(card() for _ in sizes))
    cards = iter(sizes)
    return replace(
        found,
        pci=tuple(replace(f, max_read_request=next(cards)) if f.is_network_card else f for f in found.pci),
    )


@pytest.mark.parametrize(
    ("sizes", "codes"),
    [
        ((4096, 4096, 512), ["network.read-request-differs"]),
        ((4096, 512), ["network.read-request-mixed"]),
        ((512, 512, 512), [None]),
        ((None, None, None), [None]),
        ((4096, 4096, None), [None]),
    ],
)
def test_sizes_of_pcie_reads_are_compared_where_root_could_read_them(sizes, codes):
    assert [finding.code for finding in judge(firmware, requesting(*sizes))] == codes


@pytest.mark.parametrize(
    ("devices", "code"),
    [
        ((card(), card(), card()), None),
        ((card(), card(**OLD)), "network.firmware-mixed"),
        ((card(), card(**OLD, board="MT_0000000838")), "network.no-equal-boards"),
        ((card(firmware=None), card(**OLD)), "network.no-equal-boards"),
        ((card(board=None), card(board=None, **OLD)), "network.no-equal-boards"),
        ((card(), card(unread="no answer within 5 s", firmware=None)), "network.no-equal-boards"),
        ((), "network.no-rdma-device"),
    ],
)
def test_only_equal_boards_are_compared(devices, code):
    (finding,) = judge(firmware, host(*devices))

    assert finding.code == code
    assert code not in ("network.no-equal-boards", "network.no-rdma-device") or finding.verdict is SKIP


FINE, ERROR = {"fw": "healthy", "tx": "healthy"}, {"fw": "healthy", "fw_fatal": "error"}
LATE = {"devlink": "no answer within 5 s"}


@pytest.mark.parametrize(
    ("reporters", "expected"),
    [
        ((FINE, FINE), [(PASS, None, "host")]),
        ((FINE, {}), [(PASS, None, "host")]),
        ((FINE, ERROR), [(WARN, "network.reporter-error", "nic:0000:14:00.0")]),
        ((LATE, FINE), [(UNKNOWN, "network.reporter-unread", "nic:0000:04:00.0")]),
        (({"fw": "state 7"}, FINE), [(UNKNOWN, "network.reporter-unread", "nic:0000:04:00.0")]),
        (({}, {}), [(SKIP, "network.no-reporter", "host")]),
    ],
)
def test_a_reporter_in_state_error_is_named(reporters, expected):
    found = judge("nic-health", host(*(card(reporters=tuple(one.items())) for one in reporters)))

    assert [(one.verdict, one.code, one.subject) for one in found] == expected


def test_no_card_is_not_applicable():
    assert [one.code for one in judge("nic-health", facts(pci=(), rdma=()))] == ["network.no-rdma-device"]
