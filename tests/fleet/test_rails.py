"""Network cards of many hosts: what is sick at one place everywhere is the switch of that rail."""

from gpucheck import fleet
from tests.fleet.reports import GOOD, bad, report, rows

RAILS = tuple(f"0000:{n:x}a:00.0" for n in range(8))


def merged(*sick):
    """Twelve hosts with eight cards; sick: for each host from the first on the cards whose port is down."""
    hosts = []
    for n in range(12):
        found = [
            bad("nic-ports", "nic-down", subject=f"nic:{RAILS[card]}") for card in (sick[n] if n < len(sick) else ())
        ]
        hosts.append(report(f"n{n:02}", findings=(GOOD, *found), attributes={"nic-rail": RAILS}))
    return [one for one in fleet.merge(rows(*hosts)).causes if one.attributes[0].startswith("nic = ")]


def test_one_rail_that_is_bad_on_many_hosts_points_to_its_switch():
    (cause,) = merged([3], [3], [3], [3], [5])

    assert (cause.sign, cause.attributes, cause.sick, cause.sick_with) == ("nic-down", (f"nic = {RAILS[3]}",), 5, 4)
    assert "leaf switch" in cause.text


def test_cards_here_and_there_or_all_of_one_host_do_not():
    assert merged([3], [4], [5], [3]) == []
    assert merged(range(8), range(8), range(8), range(8)) == []
