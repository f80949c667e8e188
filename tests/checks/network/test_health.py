"""Reporters of devlink: of several states the worst is stated; what was not read passes nowhere."""

import pytest

from gpucheck.checks.network import health
from tests.checks.judging import PASS, SKIP, UNKNOWN, WARN, judge
from tests.checks.network.cards import card, host
from tests.fakes import facts

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
    found = judge(health, host(*(card(reporters=tuple(one.items())) for one in reporters)))

    assert [(one.verdict, one.code, one.subject) for one in found] == expected


def test_no_card_is_not_applicable():
    assert [one.code for one in judge(health, facts(pci=(), rdma=()))] == ["network.no-rdma-device"]
