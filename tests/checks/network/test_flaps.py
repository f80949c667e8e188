"""Links that go down and come back: counted with their dates, and not what every port does at once."""

import pytest

from gpucheck.host.kernel_log import ABOUT_GPUS
from gpucheck.model import KernelLine, KernelLog
from tests.checks.judging import PASS, SKIP, UNKNOWN, WARN, judge
from tests.checks.network.cards import card, host, port

ETHERNET = port(link_layer="ethernet")
HOUR = 3600.0
DAY = 24 * HOUR


def log(*events):
    """(switch, seconds, state): what the driver of the card below that switch writes."""
    lines = tuple(
        KernelLine(text=f"mlx5_core 0000:{place}4:00.0 eth{place}: Link {state}", seconds=seconds)
        for place, seconds, state in events
    )
    return KernelLog(lines=lines, source="/dev/kmsg")


def flap(place, at, for_s=5.0):
    return (place, at, "down"), (place, at + for_s, "up")


def judged(events, cards=4, ports=ETHERNET, **changes):
    found = host(*(card(ports),) * cards, **{"kernel_log": log(*events)} | changes)
    return [(finding.verdict, finding.subject) for finding in judge("nic-flaps", found)]


def test_two_flaps_within_half_a_day_are_named():
    assert judged([*flap(2, DAY), *flap(2, DAY + HOUR)]) == [(WARN, "nic:0000:24:00.0")]


@pytest.mark.parametrize(
    ("why", "events"),
    [
        ("none", []),
        ("one", flap(2, DAY)),
        ("two of two cards", [*flap(1, DAY), *flap(2, DAY + HOUR)]),
        ("two, a day apart", [*flap(2, DAY), *flap(2, 2 * DAY)]),
        ("while the host boots", [*flap(2, 20), *flap(2, 40)]),
        ("it went down and stayed down", [(2, DAY, "down"), (2, DAY + HOUR, "down")]),
        ("up without down", [(2, DAY, "up"), (2, DAY + HOUR, "up")]),
        (
            "a switch that restarted twice",
            [e for at in (DAY, DAY + HOUR) for n in range(4) for e in flap(n, at + n / 2)],
        ),
    ],
)
def test_what_is_no_flap_passes(why, events):
    assert judged(sorted(events, key=lambda event: event[1])) == [(PASS, "host")], why


@pytest.mark.parametrize(
    "line",
    [
        "bnxt_en 0000:24:00.0 ens1: NIC Link is {}",
        "ice 0000:24:00.0 ens1f0: NIC Link is {}",
        "mlx5_core 0000:24:00.0: Port: 1 Link {}",
        "mlx5_core 0000:24:00.0 eth2: Link {}",
    ],
)
def test_forms_of_the_drivers(line):
    words = [(DAY, "Down"), (DAY + 9, "Up"), (DAY + 60, "Down"), (DAY + 70, "Up")]
    lines = tuple(KernelLine(text=line.format(state), seconds=seconds) for seconds, state in words)

    found = judged([], kernel_log=KernelLog(lines=lines, source="/dev/kmsg"))

    assert all(ABOUT_GPUS.search(one.text) for one in lines)  # the reader of a live host keeps them

    assert found == [(WARN, "nic:0000:24:00.0")] if "Port:" not in line else [(PASS, "host")]


def test_without_a_log_ethernet_or_cards_there_is_no_answer():
    assert judged([], kernel_log=KernelLog(denied="/dev/kmsg: denied")) == [(UNKNOWN, "host")]
    assert judged([], ports=port()) == [(SKIP, "host")]
    assert judged([], cards=0) == [(SKIP, "host")]


def test_a_pass_states_which_messages_are_overwritten():
    found = host(card(ETHERNET), kernel_log=KernelLog(source="/dev/kmsg", begins_s=10 * DAY))

    (finding,) = judge("nic-flaps", found)

    assert finding.seen == "1 links without flaps; messages of the first 10.0 days after boot are overwritten"
