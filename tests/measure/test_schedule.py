"""Rounds are as few as the busiest resource allows, and nothing in a round meets anything else."""

from collections import Counter
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.measure.schedule import lower_bound, rounds


def one_way(count):
    order = list(permutations(range(count), 2))
    return order, [{f"out:{a}", f"in:{b}"} for a, b in order]


def both_ways(count):
    order = list(combinations(range(count), 2))
    return order, [{f"out:{a}", f"in:{b}", f"out:{b}", f"in:{a}"} for a, b in order]


def below_switches(groups, sockets=1, both=False):
    """GPUs below switches of these sizes, the switches spread over sockets."""
    switch = [group for group, size in enumerate(groups) for _ in range(size)]
    half = -(-len(groups) // sockets)

    def way(a, b):
        taken = {f"out:{a}", f"in:{b}", f"up:{a}", f"down:{b}"}
        if switch[a] != switch[b]:
            taken |= {f"up:s{switch[a]}", f"down:s{switch[b]}"}
        if switch[a] // half != switch[b] // half:
            taken.add(f"socket:{switch[a] // half}>{switch[b] // half}")
        return taken

    pairs = list(combinations(range(len(switch)), 2) if both else permutations(range(len(switch)), 2))
    return pairs, [way(a, b) | way(b, a) if both else way(a, b) for a, b in pairs]


def hold(items, schedule):
    """Every item once, no resource twice in a round."""
    assert sorted(i for members in schedule for i in members) == list(range(len(items)))
    for members in schedule:
        used = Counter(resource for i in members for resource in items[i])
        assert all(count == 1 for count in used.values())


def busiest(items):
    return max(Counter(resource for item in items for resource in item).values())


def test_56_ordered_pairs_through_nvswitch_take_7_rounds():
    order, items = one_way(8)
    schedule = rounds(items, order)

    hold(items, schedule)
    assert len(schedule) == 7


@pytest.mark.parametrize("count", range(2, 17))
def test_all_pairs_through_a_switch_take_the_fewest_rounds_there_are(count):
    order, items = one_way(count)
    assert len(rounds(items, order)) == count - 1
    order, items = both_ways(count)
    assert len(rounds(items, order)) == count - 1 + count % 2


@pytest.mark.parametrize(
    ("groups", "sockets", "both", "fewest"),
    [
        ([4, 4], 1, False, 16),  # sixteen pairs each way over one uplink
        ([4, 4], 2, False, 16),
        ([2, 2, 2, 2], 2, False, 16),
        ([2, 2, 2, 2], 2, True, 20),  # sixteen across the sockets, and four that none of them leaves room for
        ([1] * 8, 1, False, 7),
        ([1] * 8, 2, False, 16),
        ([4, 2], 1, True, 9),
        ([2, 2], 1, True, 5),
        ([4, 4, 4, 4], 2, False, 64),
        ([1, 1], 2, False, 1),
    ],
)
def test_switches_and_sockets_take_what_their_links_demand(groups, sockets, both, fewest):
    order, items = below_switches(groups, sockets, both)
    schedule = rounds(items, order)

    hold(items, schedule)
    assert len(schedule) == lower_bound(items) == fewest


@settings(max_examples=60, deadline=None)
@given(count=st.integers(2, 9), data=st.data())
def test_any_choice_of_pairs_through_a_switch_reaches_the_busiest_port(count, data):
    """By Koenig's theorem: copies out of GPUs and into GPUs make a bipartite graph."""
    order, items = one_way(count)
    kept = data.draw(st.lists(st.sampled_from(range(len(items))), min_size=1, unique=True))
    some = [items[i] for i in kept]
    schedule = rounds(some, [order[i] for i in kept])

    hold(some, schedule)
    assert len(schedule) == busiest(some)


@settings(max_examples=40, deadline=None)
@given(groups=st.lists(st.integers(1, 4), min_size=1, max_size=4), sockets=st.integers(1, 2), both=st.booleans())
def test_random_trees_are_scheduled_within_one_round_of_the_bound(groups, sockets, both):
    order, items = below_switches(groups, min(sockets, len(groups)), both)
    if not items:
        return
    schedule = rounds(items, order)

    hold(items, schedule)
    assert busiest(items) <= lower_bound(items) <= len(schedule) <= lower_bound(items) + 1


def test_nothing_to_measure_needs_no_round():
    assert rounds([]) == ()
