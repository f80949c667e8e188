"""Counters read twice: what rises by more than a healthy link has is named, and nothing that is normal is."""

import pytest

from gpucheck.checks.network import counters
from gpucheck.model.host.network import PortCounters
from tests.checks.judging import PASS, SKIP, UNKNOWN, WARN, judge
from tests.checks.network.cards import card, host, port

HOUR = 3600.0


def judged(before, after, seconds=2.0, ports=None, **changes):
    """(verdict, code, cause) of the first of two cards."""
    own = card(ports or port())
    start = tuple(PortCounters(port=f"mlx5_{n}/1", values=before, seconds=7.0) for n in range(2))
    end = (PortCounters(**{"port": "mlx5_0/1", "values": after, "seconds": 7.0 + seconds} | changes),)
    (finding,) = judge(counters, host(own, own, counters_at_start=start[:1], counters=end))
    assert finding.subject == ("nic:0000:04:00.0" if finding.verdict in (WARN, UNKNOWN) else "host")
    return finding.verdict, finding.code, finding.cause


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({"symbol_error": (2, 40)}, "nic-errors"),
        ({"rx_pcs_symbol_err_phy": (2, 40)}, "nic-errors"),
        ({"rx_icrc_encapsulated": (0, 40)}, "nic-errors"),
        ({"link_downed": (3, 4)}, "nic-flap"),
        ({"link_downed": (250, 255)}, "nic-flap"),
        ({"port_xmit_discards": (0, 900)}, "nic-congestion"),
        ({"tx_prio3_pause_duration": (0, 400_000)}, "nic-congestion"),
        ({"rx_global_pause_duration": (0, 400_000)}, "nic-congestion"),
        # One fault, one finding: what explains the others.
        ({"link_downed": (3, 4), "symbol_error": (0, 90), "port_xmit_discards": (0, 900)}, "nic-flap"),
        ({"symbol_error": (0, 90), "roce_slow_restart": (0, 900)}, "nic-errors"),
        # The register of one counter has stopped, and another one counts.
        ({"symbol_error": (65535, 65535), "port_rcv_errors": (1, 90)}, "nic-errors"),
    ],
)
def test_what_rises_is_named(values, cause):
    before, after = ({name: pair[n] for name, pair in values.items()} for n in (0, 1))

    assert judged(before, after) == (WARN, f"network.counters-{cause[4:]}", cause)


@pytest.mark.parametrize(
    ("why", "values"),
    [
        ("totals of last year", {"symbol_error": (900, 900), "link_downed": (255, 255), "link_down_events": (9, 9)}),
        ("one error in two seconds", {"symbol_error": (2, 3)}),
        ("discards of a burst", {"port_xmit_discards": (2846, 2900)}),
        ("pause of 2 % of the time", {"rx_prio3_pause_duration": (0, 40_000), "symbol_error": (0, 0)}),
        (
            "normal at work",
            {
                "symbol_error": (0, 0), "rx_corrected_bits_phy": (0, 10**9), "np_cnp_sent": (0, 10**6),
                "np_ecn_marked_roce_packets": (0, 10**6), "rnr_nak_retry_err": (0, 10**6),
                "out_of_sequence": (0, 10**6), "port_xmit_wait": (0, 10**9), "outbound_pci_stalled_rd": (0, 99),
                "recoverable_errors": (0, 10**6), "rx_prio3_pause": (0, 10**6), "req_cqe_flush_error": (0, 10**6),
            },
        ),
        ("a stopped register beside one that counts", {"symbol_error": (65535, 65535), "port_rcv_errors": (9, 9)}),
    ],
)  # fmt: skip
def test_what_is_normal_passes(why, values):
    before, after = ({name: pair[n] for name, pair in values.items()} for n in (0, 1))

    assert judged(before, after)[0] is PASS, why


@pytest.mark.parametrize(("gbit_s", "verdict"), [(400.0, PASS), (25.0, WARN)])
def test_the_limit_follows_from_the_rate_of_the_port(gbit_s, verdict):
    """One error in 10**12 bits: 1440 an hour at 400 Gb/s."""
    assert judged({"symbol_error": 0}, {"symbol_error": 1400}, HOUR, port(rate_gbit_s=gbit_s))[0] is verdict


@pytest.mark.parametrize(
    ("before", "after", "changes", "code"),
    [
        ({"symbol_error": 9}, {"symbol_error": 0}, {}, "network.counters-cleared"),
        ({"link_downed": 255}, {"link_downed": 255}, {}, "network.counters-saturated"),
        ({"symbol_error": 9}, {}, {"unread": "Input/output error"}, "network.counters-unread"),
    ],
)
def test_what_states_nothing_is_unknown(before, after, changes, code):
    assert judged(before, after, **changes) == (UNKNOWN, code, None)


def test_a_card_that_leaves_during_the_run_is_named():
    start = tuple(PortCounters(port=f"mlx5_{n}/1", values={"symbol_error": 0}, seconds=7.0) for n in range(2))
    end = (PortCounters(port="mlx5_0/1", values={"symbol_error": 0}, seconds=8.0),)

    found = judge(counters, host(card(), card(), counters_at_start=start, counters=end))

    assert [(one.verdict, one.cause, one.subject) for one in found if one.verdict is not PASS] == [
        (WARN, "nic-driver", "nic:0000:14:00.0")
    ]


def test_ports_without_counters_and_hosts_without_cards_are_skipped():
    assert [one.code for one in judge(counters, host(card(), card()))] == ["network.no-counters"]
    assert [one.verdict for one in judge(counters, host())] == [SKIP]
