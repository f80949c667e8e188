"""Live output of infiniband-diags 44.0 on a fabric of ibsim 0.10 with opensm 3.3.23 (Debian 12): two hosts, one switch.

Counters were set in its console: PerformanceSet "H2"[1] PortCounters.SymbolErrorCounter=250 (and LinkDownedCounter=3)
between the two readings of perfquery; then Unlink "H2"[1].
"""

from pathlib import Path

import pytest
from msgspec import json

from tests.cli import commands

DATA = Path(__file__).parents[2] / "data/ibsim"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ibstat-linked", {("nic-ports", "pass", None, "1 of 1 active")}),
        ("ibstat-unlinked", {("nic-ports", "unknown", None, "down")}),
        ("ibqueryerrors", {("nic-counters", "unknown", None, "2 totals above 0")}),
        (
            "perfquery-twice",
            {
                ("nic-counters", "unknown", "nic-errors", "rose in 1 of 1 intervals"),
                ("nic-counters", "unknown", "nic-flap", "rose in 1 of 1 intervals"),
            },
        ),
    ],
)
def test_what_was_set_in_the_fabric_is_found_again(capsys, name, expected):
    _, out, _ = commands.run(capsys, "diagnose", str(DATA / f"{name}.txt"), "--format", "json")
    found = json.decode(out)["findings"]

    assert {(one["check"], one["verdict"], one["cause"], one["seen"]) for one in found} == expected


def test_counters_have_the_values_of_the_console(capsys):
    _, out, _ = commands.run(capsys, "diagnose", str(DATA / "perfquery-twice.txt"), "--format", "json")

    assert {line for one in json.decode(out)["findings"] for line in one["evidence"]} == {
        "Lid 3 port 1: symbol_error 0 -> 250",
        "Lid 3 port 1: link_downed 0 -> 3",
    }
