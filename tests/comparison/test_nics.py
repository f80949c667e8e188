"""Network cards of two reports: the same card is found again, and what became worse is named."""

import msgspec
import pytest

from gpucheck import comparison
from gpucheck.model import Report, Verdict
from gpucheck.model.host.network import PortCounters
from gpucheck.model.record import RECORD, stored
from gpucheck.run import verification as run
from gpucheck.run.steps.health import record_step
from tests.checks.network.cards import DOWN, card, named, nic, port
from tests.comparison.reports import NOW, THEN
from tests.machines import h100, whole_host

HOUR, UPTIME_H, BETWEEN_H = 3600, 100, 10


def report(devices, started=NOW, places=None, values=None, uptime_h=UPTIME_H) -> Report:
    """Of a host with a GPU and these cards at places; values: counters of the first one."""
    host = whole_host(h100(0))
    pci = tuple(nic(place, f"mlx5_{n}") for n, place in enumerate(places or range(len(devices))))
    counters = tuple(PortCounters(port="mlx5_0/1", values=values, seconds=5.0) for _ in range(1) if values)
    host = msgspec.structs.replace(host, pci=host.pci + pci, rdma=named(devices), counters_at_start=counters)
    host.texts["/proc/uptime"] = f"{uptime_h * HOUR} 1.0"
    return msgspec.structs.replace(run.verify(host, [record_step()]), started=started)


def changed(before, after):
    found = comparison.compare(report(**before, started=THEN), report(**after))
    return [(one.code, one.cause, one.subject) for one in found if one.verdict in (Verdict.WARN, Verdict.FAIL)]


@pytest.mark.parametrize(
    ("text", "devices", "verdict", "cause"),
    [
        ("devices: 2", (card(), card()), Verdict.PASS, None),
        ("devices: 4", (card(), card()), Verdict.FAIL, "nic-rail"),
        ("devices: 1", (card(), card()), Verdict.FAIL, "site-expectation"),
        ("devices: 1", (card(), card(is_virtual=True)), Verdict.PASS, None),
        ("ports: {400: 2}", (card(), card(), card()), Verdict.PASS, None),
        ("ports: {400: 2}", (card(), card(DOWN)), Verdict.FAIL, "nic-down"),
        ("ports: {400: 2}", (card(), card(port(rate_gbit_s=200.0))), Verdict.FAIL, "nic-down"),
        ("ports: {400: 2}", (card(), card(port(state=None))), Verdict.UNKNOWN, None),
    ],
)
def test_a_site_states_its_devices_and_ports(text, devices, verdict, cause):
    """Which are missing is not known: the finding is about the host."""
    wanted = comparison.read(f"network: {{{text}}}", "site.yml")
    (found,) = comparison.evaluate(report(devices), wanted)

    assert (found.verdict, found.cause, found.subject) == (verdict, cause, "host")


def test_cards_that_could_not_be_read_are_neither_gone_nor_missing():
    """The read of RDMA devices failed, or was ended at its deadline."""
    before, unread = report([card(), card()], started=THEN), report([card(), card()])
    kept = unread.measurements[RECORD] | {"nics": None}
    assert stored(msgspec.structs.replace(whole_host(h100(0)), rdma=msgspec.UNSET), None)["nics"] is None
    unread = msgspec.structs.replace(unread, measurements={**unread.measurements, RECORD: kept})
    (found,) = comparison.evaluate(unread, comparison.read("network: {devices: 2}", "site.yml"))

    assert (found.verdict, found.code) == (Verdict.UNKNOWN, "comparison.network-unknown")
    assert not [one for one in comparison.compare(before, unread) if one.code == "comparison.nic-gone"]


TWO = {"devices": [card(card="a"), card(card="b")]}
FIRST, SECOND = "nic:0000:04:00.0", "nic:0000:14:00.0"


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (TWO, []),
        ({"devices": TWO["devices"][:1]}, [("comparison.nic-gone", "nic-rail", SECOND)]),
        ({"devices": [card(card="a"), card(DOWN, card="b")]}, [("comparison.nic-port-lost", "nic-down", SECOND)]),
        (
            {"devices": [card(port(rate_gbit_s=200.0), card="a"), card(card="b")]},
            [("comparison.nic-slower", "nic-rate", FIRST)],
        ),
        # Renumbered by a boot, or by a card in another slot.
        ({"devices": TWO["devices"], "places": (1, 0)}, []),
        ({"devices": TWO["devices"], "places": (0, 7)}, []),
        (
            {"devices": [card(card="a"), card(DOWN, card="b")], "places": (0, 7)},
            [("comparison.nic-port-lost", "nic-down", "nic:0000:74:00.0")],
        ),
    ],
)
def test_a_card_is_found_again_and_what_is_worse_is_named(after, expected):
    assert changed(TWO, after) == expected


@pytest.mark.parametrize(
    ("before", "after", "uptime_h", "cause"),
    [
        # One error in 10**12 bits is 1440 an hour at 400 Gb/s.
        ({"symbol_error": 10}, {"symbol_error": 12_000}, UPTIME_H, None),
        ({"symbol_error": 10}, {"symbol_error": 30_000}, UPTIME_H, "nic-errors"),
        ({"link_downed": 255}, {"link_downed": 255}, UPTIME_H, None),
        ({"link_downed": 3}, {"link_downed": 4}, UPTIME_H, "nic-flap"),
        # Set to zero by a reboot an hour ago.
        ({"symbol_error": 50_000}, {"symbol_error": 900}, 1, None),
        ({"symbol_error": 50_000}, {"symbol_error": 9_000}, 1, "nic-errors"),
    ],
)
def test_counters_are_rates_over_the_time_between(before, after, uptime_h, cause):
    one = {"devices": [card(), card()]}

    found = changed({**one, "values": before}, {**one, "values": after, "uptime_h": uptime_h})

    assert [(cause, subject) for _, cause, subject in found] == ([(cause, FIRST)] if cause else [])
