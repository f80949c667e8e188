"""Findings that only follow from another one are told apart by data, never by their words."""

from gpucheck.model import Finding, Verdict, by_root


def finding(check, verdict=Verdict.UNKNOWN, because_of=None):
    return Finding(check=check, verdict=verdict, subject="host", because_of=because_of, why="w", fix="f")


def names(findings):
    own, follow = by_root(findings)
    return [fault.lead.check for fault in own], follow


def test_what_follows_is_listed_below_the_check_of_the_root_cause():
    found = names([finding("bar1", because_of="driver"), finding("driver", Verdict.FAIL), finding("numa")])

    assert found == (["driver", "numa"], {"driver": ["bar1"]})


def test_a_chain_ends_at_its_root():
    """acs needs a GPU on the bus, which inventory compares with NVML, which needs the driver."""
    chain = [finding("acs", because_of="inventory"), finding("inventory", because_of="driver"), finding("driver")]

    assert names(chain) == (["driver"], {"driver": ["acs", "inventory"]})


def test_without_its_root_cause_a_finding_is_on_its_own():
    assert names([finding("bar1", because_of="driver")]) == (["bar1"], {})


def test_a_root_that_passes_is_no_root_cause():
    found = names([finding("bar1", because_of="driver"), finding("driver", Verdict.PASS)])

    assert found == (["bar1", "driver"], {})


def test_a_check_with_a_finding_of_its_own_is_the_root_of_what_follows_it():
    mixed = [finding("inventory", because_of="driver"), finding("inventory", Verdict.FAIL), finding("driver")]

    assert names([*mixed, finding("acs", because_of="inventory")]) == (
        ["inventory", "driver"],
        {"driver": ["inventory"], "inventory": ["acs"]},
    )


def test_a_circle_ends():
    assert names([finding("a", because_of="b"), finding("b", because_of="a")])[1] == {}
