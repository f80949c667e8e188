"""Batches: sizes as a site states them, each with somebody in it who cannot die."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.playbooks.modules import action

plugin = action("rollout_batches")


@pytest.mark.parametrize(
    ("batch", "changing", "fleet", "sizes"),
    [
        (25, 60, 100, [25, 25, 10]),
        ("25", 3, 3, [3]),
        ("10%", 25, 100, [10, 10, 5]),
        ("1%", 3, 20, [1, 1, 1]),
        ([1, 10, "50%"], 60, 100, [1, 10, 49]),
        ([1, 2], 6, 6, [1, 2, 2, 1]),
        (25, 0, 100, []),
    ],
)
def test_sizes_are_what_the_site_states(batch, changing, fleet, sizes):
    """The last step of a list repeats; a share is one of the fleet, not of those that change."""
    assert plugin.sizes(batch, changing, fleet) == sizes


@pytest.mark.parametrize("batch", ["ten", "-3", "0", 0, "%", [1, "x"], "0%", []])
def test_what_is_no_size_is_refused(batch):
    with pytest.raises(ValueError, match=r".*"):
        plugin.sizes(batch, 5, 10)


@given(count=st.integers(0, 60), batch=st.integers(1, 30), limited=st.booleans())
def test_every_host_is_in_one_batch_and_every_batch_has_a_keeper(count, batch, limited):
    hosts = [f"n{number}" for number in range(count)]

    made = plugin.arrange(hosts, batch, count, limited)

    assert [name for name in made["order"] if name in hosts] == hosts
    assert sum(made["sizes"]) == len(made["order"])
    rest = list(made["order"])
    for number, size in enumerate(made["sizes"], start=1):
        members, rest = rest[:size], rest[size:]
        keepers = [name for name in members if name not in hosts]
        last = number == len(made["sizes"])
        assert keepers == (["localhost"] if last else [] if limited else [f"batch-{number:03}"])
        assert len(members) - len(keepers) <= batch


@pytest.mark.parametrize(
    ("batch", "first"), [([1, 2], ["a"]), (["50%", 1], ["a", "b"]), (1, []), ("50%", []), ([4], []), ([9, 1], [])]
)
def test_the_first_step_of_a_list_is_a_canary(batch, first):
    assert plugin.arrange(["a", "b", "c", "d"], batch, 4, False)["first"] == first
