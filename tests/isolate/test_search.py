"""The search on simulated fleets: every fault is found, nobody else is accused, and doubt is no pass."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.isolate.report import Searched, findings
from gpucheck.isolate.search import Known, Limits, Outcome, Results, Round, _first_pairs, search
from gpucheck.isolate.simulated import GB_S, SimulatedFleet, Spec, parse_spec
from gpucheck.model import Verdict, worst
from gpucheck.model.isolation import GroupTest

SEEDS = range(10)
NOT_DRAWN = ("loss", "noise", "cut", "sometimes", "switches", "nics", "together")


def searched(
    spec: Spec, expected: float | None = GB_S, *, switches: bool = True, repeat: int = 1
) -> tuple[SimulatedFleet, Searched]:
    fleet, limits = SimulatedFleet(spec), Limits(expected, repeat=repeat)
    rounds: list[list[GroupTest]] = []

    def run(tests: Round) -> list[GroupTest]:
        assert len({name for test in tests for name in test}) == sum(map(len, tests)), "a node is in two tests"
        rounds.append(fleet.run(tests))
        return rounds[-1]

    outcome = search(Known(fleet.nodes, fleet.switch_of if switches else {}, limits), run)
    return fleet, Searched(rounds, outcome, {})


def asked_first(fleet: SimulatedFleet, asked: list[Round], count: int) -> Callable[[Round], Results]:
    """Run rounds, of which so many are kept in `asked`; the last of them is not run, and ends the search."""

    def run(tests: Round) -> Results:
        asked.append(tests)
        return fleet.run(tests) if len(asked) < count else None

    return run


def verdict(tested: Searched) -> Verdict:
    return worst(one.verdict for one in findings(tested, Limits(GB_S), 64))


# What is drawn, whether the bandwidth of all nodes together is known, and the most rounds.
FOUND = [
    ("nodes=1024", True, 1),
    ("nodes=33", False, 3),
    ("nodes=1024,bad=20", True, 4),
    ("nodes=1024,bad=20", False, 4),
    ("nodes=232,bad=5", True, 4),
    ("nodes=256,bad=2,hangs=2,dies=2,wrong=1,cut=1", True, 4),
    ("nodes=50,bad=8", True, 6),
    ("nodes=8,bad=1", True, 5),
    ("nodes=4,bad=1", False, 3),
    ("nodes=3,bad=1", False, 3),
    ("nodes=1024,switches=1", True, 5),
    ("nodes=96,switches=1", True, 6),
    ("nodes=256,switches=2", False, 7),
    ("nodes=256,nics=1", True, 1),
    ("nodes=256,nics=1,bad=1", False, 5),
    ("nodes=128,links=1", True, 9),
    ("nodes=256,bad=4,noise=0.03,loss=0.35", True, 4),
]


@pytest.mark.parametrize(("drawn", "whole", "most"), FOUND)
def test_what_is_wrong_is_found_and_nothing_else(drawn, whole, most):
    for seed in SEEDS:
        fleet, tested = searched(parse_spec(drawn)._replace(seed=seed), GB_S if whole else None)
        outcome, truth = tested.outcome, fleet.truth
        # Cards alone do not slow a simulated test of one node down: what is bad is bad with each other card, too.
        assert outcome.nodes == (truth.bad if not truth.nics else outcome.nodes), seed
        assert set(outcome.nodes) <= set(truth.bad)
        assert (outcome.links, outcome.switches, outcome.nics) == (truth.links, truth.switches, truth.nics), seed
        assert not outcome.open
        assert len(tested.rounds) <= most, seed
        wrong = truth.bad or truth.links or truth.switches or truth.nics
        assert (verdict(tested) is Verdict.PASS) == (not wrong), seed


@pytest.mark.parametrize(
    ("drawn", "expected", "wanted"),
    [
        ("nodes=2", GB_S, Verdict.PASS),
        ("nodes=2,bad=1", None, Verdict.UNKNOWN),
        ("nodes=3", None, Verdict.PASS),
    ],
)
def test_one_pair_without_a_normal_is_no_pass(drawn, expected, wanted):
    """A slow node makes the only pair slow, and the pair was as fast as itself."""
    fleet, tested = searched(parse_spec(drawn), expected)

    assert worst(one.verdict for one in findings(tested, Limits(expected), len(fleet.nodes))) is wanted


@pytest.mark.more
@pytest.mark.parametrize("drawn", ["nodes=1024,bad=20", "nodes=232,bad=5"])
def test_a_thousand_fleets_are_exact_in_four_rounds(drawn):
    found = [searched(parse_spec(drawn)._replace(seed=seed)) for seed in range(1000)]
    assert sum(tested.outcome.nodes == fleet.truth.bad for fleet, tested in found) >= 999
    assert sum(len(tested.rounds) <= 4 for _, tested in found) >= 999
    assert not [fleet for fleet, tested in found if set(tested.outcome.nodes) - set(fleet.truth.bad)]


def test_nodes_that_were_bad_before_do_not_share_a_first_test():
    """A lemon in each of two bad pairs takes a round less than both in one."""
    for seed in SEEDS:
        fleet = SimulatedFleet(Spec(nodes=65, bad=16, seed=seed))
        asked: list[Round] = []
        rounds = asked_first(fleet, asked, 2)
        search(Known(fleet.nodes, {}, Limits(GB_S), fleet.truth.bad), rounds)
        tests = asked[1]
        lemons = set(fleet.truth.bad)
        assert not [test for test in tests if set(test) <= lemons]
        assert lemons <= {name for test in tests for name in test}
        assert len({name for test in tests for name in test}) == 2 * len(tests) == 64


def test_two_switches_are_named_together():
    """Which of the two is slow cannot be seen."""
    for seed in SEEDS:
        fleet, tested = searched(Spec(nodes=64, switches=1, seed=seed))
        assert tested.outcome.switches == tuple(sorted(set(fleet.switch_of.values())))
        assert not tested.outcome.nodes


def test_nodes_that_are_slow_only_together_are_narrowed_down():
    for seed in SEEDS:
        _, tested = searched(Spec(nodes=64, together=8, seed=seed))
        assert 8 < len(tested.outcome.together) <= 16
        assert not tested.outcome.nodes
        assert verdict(tested) is Verdict.FAIL


def test_nodes_that_are_slow_at_times_are_named_where_tests_show_it():
    """Half of their tests are good, so that many do not show; no other node is named."""
    for expected in (GB_S, None):
        for repeat, least in ((1, 50), (4, 95), (8, 112)):
            named = 0
            for seed in range(60):
                fleet, tested = searched(Spec(nodes=64, sometimes=2, seed=seed), expected, repeat=repeat)
                assert set(tested.outcome.nodes) <= set(fleet.truth.bad)
                assert not tested.outcome.bad or verdict(tested) is not Verdict.PASS, "slow once is not equal"
                named += len(tested.outcome.nodes)
            assert named >= least  # of 120


@pytest.mark.parametrize("nodes", [2, 3, 4, 7, 8, 9, 33, 64])
@pytest.mark.parametrize("expected", [GB_S, None])
def test_repeated_first_tests_are_with_other_nodes(nodes, expected):
    fleet = SimulatedFleet(Spec(nodes=nodes))
    asked = [tests for time in range(4) for tests in _first_pairs(fleet.nodes, time, every=expected is None)]
    met = {name: {peer for tests in asked for pair in tests if name in pair for peer in pair} for name in fleet.nodes}

    assert min(len(peers) - 1 for peers in met.values()) >= min(nodes - 1, nodes // 2, 2 if nodes % 2 else 4)
    _, tested = searched(Spec(nodes=nodes), expected, repeat=4)
    assert len(tested.rounds) == (4 if expected and nodes > 2 else len(asked))
    assert verdict(tested) is Verdict.PASS


@settings(max_examples=300)
@given(
    st.builds(
        Spec,
        nodes=st.integers(2, 80),
        bad=st.integers(0, 8),
        hangs=st.integers(0, 3),
        dies=st.integers(0, 2),
        wrong=st.integers(0, 2),
        links=st.integers(0, 1),
        seed=st.integers(0, 1 << 20),
        **{name: st.just(Spec._field_defaults[name]) for name in NOT_DRAWN},
    ),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
)
def test_no_healthy_node_is_named_and_no_sick_fleet_passes(spec, whole, switches, repeat):
    faulty = spec.bad + spec.hangs + spec.dies + spec.wrong + 2 * spec.links
    if faulty > spec.nodes:
        return
    fleet, tested = searched(spec, GB_S if whole else None, switches=switches, repeat=repeat)
    ends = {name for link in fleet.truth.links for name in link}
    assert set(tested.outcome.nodes) - set(fleet.truth.bad) - ends == set()
    if whole and faulty:
        assert verdict(tested) is not Verdict.PASS


@pytest.mark.parametrize("bad", [34, 50, 70, 90, 100])
def test_half_a_fleet_that_is_slow_does_not_pass(bad):
    for seed in SEEDS:
        for expected in (GB_S, None):
            _, tested = searched(Spec(nodes=100, bad=bad, seed=seed), expected)
            assert verdict(tested) is not Verdict.PASS


def test_a_search_that_is_ended_states_what_it_knows():
    fleet = SimulatedFleet(Spec(nodes=64, bad=2, seed=3))
    outcome = search(Known(fleet.nodes, {}, Limits()), asked_first(fleet, [], 2))
    assert not outcome.nodes  # one bad test each
    assert set(fleet.truth.bad) <= set(outcome.open)
    assert verdict(Searched([[]], outcome, {}, "isolate.search-interrupted")) is Verdict.UNKNOWN


def test_equal_results_give_equal_tests():
    """A search that was cut off is repeated up to the results that are known."""

    def asked() -> list[Round]:
        fleet, rounds = SimulatedFleet(Spec(nodes=128, bad=4, sometimes=2, seed=5)), list[Round]()
        search(Known(fleet.nodes, fleet.switch_of, Limits(GB_S)), asked_first(fleet, rounds, 99))
        return rounds

    assert asked() == asked()


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        ("hung", "isolate.node-hangs", Verdict.FAIL),
        ("failed", "isolate.node-fails", Verdict.FAIL),
        ("wrong", "isolate.node-wrong", Verdict.FAIL),
        ("silent", "isolate.node-silent", Verdict.UNKNOWN),
        ("unreadable", "isolate.node-unreadable", Verdict.UNKNOWN),
    ],
)
def test_how_its_tests_end_says_what_is_wrong_with_a_node(state, code, expected):
    """What is cut off or did not start is never an accusation."""

    def result(test: tuple[str, ...]) -> GroupTest:
        bad = "n3" in test
        return GroupTest(nodes=test, state=state if bad else "done", busbw_gb_s=None if bad else 9.0)

    rounds: list[list[GroupTest]] = []

    def run(tests: Round) -> list[GroupTest]:
        rounds.append([*map(result, tests)])
        return rounds[-1]

    outcome = search(Known([f"n{at}" for at in range(10)], {}, Limits()), run)
    found = findings(Searched(rounds, outcome, {}), Limits(), 10)
    assert [(one.subject, one.code, one.verdict) for one in found] == [("node:n3", code, expected)]


def test_what_a_test_with_another_bad_node_shows_is_not_its_cause():
    """Of a slow node and one that hangs in one pair, only the second one hangs."""
    hung = GroupTest(nodes=("a", "b"), state="hung")
    slow = [GroupTest(nodes=("a", peer), state="done", busbw_gb_s=5.0) for peer in "cd"]
    more = [GroupTest(nodes=("b", peer), state="hung") for peer in "ef"]
    outcome = Outcome(nodes=("a", "b"), bad=(hung, *slow, *more))
    found = findings(Searched([[hung, *slow, *more]], outcome, {}), Limits(), 6)
    assert [one.code for one in found] == ["isolate.node-slow", "isolate.node-hangs"]


@pytest.mark.parametrize(
    "text", ["nodes", "nodes=x", "nodes=-1", "bad=2,bad=2", "loss=2", "nodes=4,bad=5", "nodes=1", "what=1", "nodes=1e9"]
)
def test_a_fleet_that_cannot_be_drawn_is_rejected(text):
    with pytest.raises(ValueError, match="expected"):
        parse_spec(text)
