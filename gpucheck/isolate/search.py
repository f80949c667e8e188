"""Which nodes to test together next, and what follows: pure, so that a search that was cut off can be repeated.

A node is named only after two bad tests with two nodes that were good elsewhere; a connection only after three bad
tests while both ends were good with others. Nodes that wait cost nothing: what counts is the number of rounds.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import quantiles
from typing import NamedTuple

from gpucheck.model.isolation import GroupTest

Nodes = tuple[str, ...]
Round = list[Nodes]
Results = Sequence[GroupTest] | None
Steps = Generator[Round, Sequence[GroupTest], None]

MOST_ROUNDS, FEW_ROUNDS = 16, 4
# With fewer nodes every pair is tested if nothing states what is normal.
FEW = 8
# A pair is slow so many standard deviations below the reference; of healthy pairs one in a million is. The deviation is
# taken from the fastest pairs, which faults do not change: between two parts are so many deviations of normal noise.
DEVIATIONS = 5.67
LOWER, SPANS = 0.75, ((0.75, 0.95, 0.97), (0.90, 0.98, 0.77))
# More is no noise of a healthy fleet: the fastest pairs differ.
MOST_NOISE = 0.03
# NAMED_AFTER: tests, each with another node; one more if it is good with others at times. LINK_AFTER: of one pair.
# CLEAR_AFTER: good tests, after which a node that was bad once is tested no more.
NAMED_AFTER, LINK_AFTER, CLEAR_AFTER = 2, 4, 6
# If this part of a switch's nodes, and at least three, are bad with others, the switch is tested before they are named.
OF_SWITCH, LEAST = 0.8, 3
# More are not a few bad nodes, but two kinds of nodes.
TWO_KINDS = 1 / 3
# All others are tested at the same time as at most this part of the nodes: their traffic could slow those down.
AT_ONCE = 0.05


class Limits(NamedTuple):
    """expected_gb_s: bus bandwidth of all nodes together, None if unknown. share: of the normal; less is slow.

    latency: a small message may take so many times as long as with others; None: its noise is unlimited.
    brief: pairs once and suspects only, for a job that waits. repeat: how often each node has its first tests, with
    other nodes each time, for nodes that are slow at times.
    """

    expected_gb_s: float | None = None
    latency: float | None = 3.0
    share: float = 0.945  # halfway between noise of 1 % and a loss of 10 %, as `reference` lies above the middle
    rounds: int = MOST_ROUNDS
    brief: bool = False
    repeat: int = 1

    @property
    def most_rounds(self) -> int:
        return self.rounds + 2 * (self.repeat - 1)


class Outcome(NamedTuple):
    """What the tests show. nodes: named ones. open: suspected without proof, or never tested. once: bad, then good.

    links: connections. switches: groups. nics: slow on nearly all nodes. together: nodes that are slow only as a group.
    kinds: more nodes are slow than a fault explains. rest: whether the others were good together; None if not tested.
    bad: tests that were not good. on_switch: nodes of these switches. reference_gb_s: of a pair of healthy nodes;
    limit_gb_s: below it a pair is slow. noise: of the fastest pairs, if it is more than of a healthy fleet.
    """

    nodes: Nodes = ()
    open: Nodes = ()
    once: tuple[Nodes, ...] = ()
    links: tuple[Nodes, ...] = ()
    switches: Nodes = ()
    nics: Nodes = ()
    together: Nodes = ()
    kinds: Nodes = ()
    rest: bool | None = None
    bad: tuple[GroupTest, ...] = ()
    on_switch: Nodes = ()
    reference_gb_s: float | None = None
    limit_gb_s: float | None = None
    noise: float | None = None


def search(known: "Known", run: Callable[[Round], Results]) -> Outcome:
    """Return what is known when nothing is left to learn. run: returns the results of a round, None to end it there."""
    steps = _rounds(known)
    with suppress(StopIteration):
        tests = next(steps)
        while (results := run(tests)) is not None:
            tests = steps.send(results)
    return known.outcome()


def _rounds(known: "Known") -> Steps:
    order, limits = known.order, known.limits
    whole = limits.expected_gb_s is not None and len(order) > 2
    for _ in range(limits.repeat if whole else 0):
        known.add((yield [tuple(order)]))
        if not known.rest:
            break
    if known.rest:
        return
    # Two pairs of three nodes share one of them, and are slow together if it is.
    every = limits.expected_gb_s is None and (not limits.brief or len(order) == 3)
    for tests in (tests for turn in range(limits.repeat) for tests in _first_pairs(order, turn, every=every)):
        known.add((yield _apart(tests, order, known.rank)))
    yield from _settle(known, whole=whole)
    if whole and not known.rest and known.round < limits.most_rounds:
        for tests in _ring(known.unnamed()):
            known.add((yield tests))
        yield from _settle(known, whole=whole)
    if whole and not known.rest and not known.left and len(known.unnamed()) > 2:
        yield from _halves(known)


def _first_pairs(order: Sequence[str], turn: int, *, every: bool) -> Iterator[Round]:
    """Yield nodes with nodes far away, on another switch. every: then neighbours, or every pair of a few nodes.

    turn: how often this was done; each time with other nodes.
    """
    half = len(order) // 2
    if every and len(order) < FEW:  # the circle method: each node meets each other once
        ring: list[str | None] = [*order, *([None] if len(order) % 2 else [])]
        for _ in range(len(ring) - 1):
            pairs = ((ring[at], ring[-1 - at]) for at in range(len(ring) // 2))
            yield [(a, b) for a, b in pairs if a is not None and b is not None]
            ring = [ring[0], ring[-1], *ring[1:-1]]
        return
    # Of an odd number of nodes, another one has no partner each time.
    order = [*order[turn % len(order) :], *order[: turn % len(order)]] if len(order) % 2 else order
    yield [(order[at], order[half + (at + turn) % half]) for at in range(half)]
    if every:
        yield [(order[at - turn % 2], order[at + 1 - turn % 2]) for at in range(turn % 2, len(order) - 1, 2)]


def _apart(tests: Round, order: Sequence[str], lemons: Mapping[str, int]) -> Round:
    """Return the tests with no two lemons in one, and every lemon in one, as far as other nodes permit."""
    tests = list(tests)
    free = [at for at, test in enumerate(tests) if not lemons.keys() & test]
    left = [name for name in order if name in lemons and not any(name in test for test in tests)]
    for at, (a, b) in enumerate(tests):
        if a in lemons and b in lemons and free:
            other = free.pop()
            c, d = tests[other]
            tests[at], tests[other] = (a, d), (c, b)
    for name, at in zip(left, free, strict=False):
        tests[at] = (tests[at][0], name)
    return tests


def _ring(order: Sequence[str]) -> Iterator[Round]:
    """Yield every connection of the ring that a collective of all nodes uses."""
    edges: Round = [(order[at], order[(at + 1) % len(order)]) for at in range(len(order))]
    last = [edges.pop()] if len(order) % 2 else []
    yield from (tests for tests in (edges[::2], edges[1::2], last) if tests and len(order) > 2)


def _settle(known: "Known", *, whole: bool) -> Steps:
    """Test suspects with nodes that were good until nothing is left to learn, and all others together once."""
    while known.round < known.limits.most_rounds:
        tests = known.next_tests()
        busy = {name for test in tests for name in test}
        others = tuple(name for name in known.unnamed() if name not in busy)
        at_once = whole and len(others) > 2 and len(busy) <= max(AT_ONCE * len(known.order), 2)
        # One more round for it only if few are done, or a pair was bad and its nodes are not.
        if at_once or (not tests and (known.left or known.round < FEW_ROUNDS)):
            tests += known.third_tests(busy)
            busy = {name for test in tests for name in test}
            others = tuple(name for name in others if name not in busy)
        if not tests and not at_once:
            return
        known.add((yield [*tests, others] if at_once else tests))
        whole = whole and not at_once


def _halves(known: "Known") -> Steps:
    """Narrow down a group that is slow although each pair is good, to the smallest that is slow twice."""
    group = tuple(known.unnamed())
    while len(group) > 3 and known.round < known.limits.most_rounds:
        halves = [group[: len(group) // 2], group[len(group) // 2 :]]
        known.add((yield halves))
        slow = [half for half, result in zip(halves, known.tests[-2:], strict=True) if not known.is_good(result)]
        if not slow:
            break
        group = slow[0]
    known.add((yield [group]))
    known.together = group if not known.is_good(known.tests[-1]) else ()


class Known:
    """All results of a search, and what follows from them. switch_of: by node, where known.

    lemons: nodes that were bad before, the worst first: no two of them share a first test, and suspects are tested with
    others.
    """

    def __init__(
        self, nodes: Sequence[str], switch_of: Mapping[str, str], limits: Limits, lemons: Sequence[str] = ()
    ) -> None:
        self.limits, self.switch_of = limits, switch_of
        self.rank = {name: at for at, name in enumerate(lemons)}
        self.order = sorted(nodes, key=lambda name: (switch_of.get(name, ""), name))
        self.place = {name: at for at, name in enumerate(self.order)}
        self.members: defaultdict[str, Nodes] = defaultdict(tuple)
        for name in self.order:
            if name in switch_of:
                self.members[switch_of[name]] += (name,)
        self.round = 0
        self.tests: list[GroupTest] = []
        self.pairs: list[GroupTest] = []
        self.rest: bool | None = None
        self.together: Nodes = ()
        self.switches: set[str] = set()
        self._inside: set[str] = set()  # switches whose nodes were tested with each other
        self._judge()

    def add(self, results: Sequence[GroupTest]) -> None:
        """Take the results of one round."""
        self.round += 1
        self.tests += results
        self.pairs += [one for one in results if len(one.nodes) == 2]
        self._judge()
        for one in results:
            if len(one.nodes) > 2:
                self.rest = self.is_good(one)

    def _judge(self) -> None:
        done = [one for one in self.pairs if one.state == "done"]
        few = len(done) < FEW
        # Not the median: a bad switch or an unlucky order makes half of the pairs slow.
        rates = [one.busbw_gb_s for one in done]
        self.reference = _part(rates, 1.0 if few else LOWER)
        self.noise = 0.0 if few else _noise(rates)
        self.share = min(self.limits.share, 1 - DEVIATIONS * min(self.noise, MOST_NOISE))
        self.limit = self.share * max(self.reference, self.limits.expected_gb_s or 0.0) if self.reference else None
        self._latency = _part((one.latency_us for one in done), 0.0 if few else 0.25)
        each = [one for one in self.tests if one.nics]
        self._nic = _part((rate for one in each for rate in one.nics.values()), 0.75)
        slow = Counter(nic for one in each for nic in self.slow_nics(one))
        self.nics = tuple(sorted(nic for nic, count in slow.items() if count >= OF_SWITCH * len(each)))
        self.met: defaultdict[str, Counter[str]] = defaultdict(Counter)  # tests of two nodes
        self.bad: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for one in self.pairs:
            for name, peer in (one.nodes, one.nodes[::-1]):
                self.met[name][peer] += 1
                self.bad[name][peer] += not self.is_good(one)
        self.bad = defaultdict(Counter, {name: +peers for name, peers in self.bad.items()})
        self.good = {name: self.met[name].total() - self.bad[name].total() for name in self.order}
        # Within its switch a node is good if only the switch is bad.
        self.far = {
            a: sum(n - self.bad[a][b] for b, n in self.met[a].items() if not self._is_near(a, b)) for a in self.order
        }
        self.found = self._bad_nodes()
        for switch, names in self._doubtful_switches().items():
            within = [one for one in self.pairs if set(one.nodes) <= set(names)]
            if within:
                self._inside.add(switch)
                if sum(map(self.is_good, within)) > len(within) / 2:
                    self.switches.add(switch)
        if len(self.members) == 2 and (across := [one for one in self.pairs if not self._is_near(*one.nodes)]):
            bad = sum(not self.is_good(one) for one in across)
            if bad >= max(LEAST, OF_SWITCH * len(across)) and sum(self.good.values()) > sum(self.far.values()):
                self.switches |= self.members.keys()  # which of the two is not to be known
        self.blamed = self.found | {name for switch in self.switches for name in self.members[switch]}
        pairs = {frozenset((a, b)): n for a in self.order for b, n in self.bad[a].items() if a < b}
        self.left = {pair: n for pair, n in pairs.items() if not pair & self.blamed}  # bad, not explained by a node
        often = {pair for pair, n in self.left.items() if n >= LINK_AFTER and self._good_apart(*pair) >= 2}
        self.links = {pair for pair in often if self._never_good(*pair)}

    def _bad_nodes(self) -> set[str]:
        """Return the nodes that are bad with enough that were good elsewhere, apart from tests with such nodes."""
        found: set[str] = set()
        while True:
            fair = {name for name in self.order if self.good[name] >= max(1, len(self.bad[name].keys() - found))}
            more = {n for n in self.order if len(fair & self.bad[n].keys()) >= NAMED_AFTER + (self.far[n] > 0)}
            if more <= found:
                return found
            found |= more

    def is_good(self, result: GroupTest) -> bool:
        """Return whether a test is complete, exact and as fast as the others; a group: as expected."""
        if result.state != "done" or result.busbw_gb_s is None:
            return False
        pair = len(result.nodes) == 2
        low = self.limit if pair else self.limits.share * (self.limits.expected_gb_s or 0.0)
        late = pair and (result.latency_us or 0.0) > (self.limits.latency or math.inf) * (self._latency or math.inf)
        # A card that is slow everywhere holds up the others in all tests: what is left are the other cards.
        slow = not self.nics and result.busbw_gb_s < (low or 0.0)
        return not (late or slow or self.slow_nics(result, self.nics))

    def slow_nics(self, result: GroupTest, but: Iterable[str] = ()) -> Nodes:
        """Return the network cards of a test that are slower than others."""
        low = self.limits.share * (self._nic or 0.0)
        return tuple(nic for nic, rate in result.nics.items() if rate < low and nic not in but)

    def doubtful(self) -> list[str]:
        """Return the nodes with a bad test so far, named ones first."""
        bad = {name for name in self.order if self.bad[name]} - self.blamed
        doubted = {name for name in bad if not self.good[name]}
        return [*sorted(self.blamed), *sorted(doubted)]

    def unnamed(self) -> list[str]:
        """Return the nodes without those that are named, and those of a named switch."""
        return [name for name in self.order if name not in self.blamed]

    def next_tests(self) -> Round:
        """Return the most useful tests: each suspect with a good node that it has not met, or a pair once more."""
        doubtful = self._doubtful_switches().values()
        tests: Round = [pair for names in doubtful for pair in zip(names[::2], names[1::2], strict=False)]
        busy = {name for test in tests for name in test} | self.blamed
        open_ = [pair for pair in self.left if pair not in self.links]
        doubted = {name for pair in open_ for name in pair if self.good[name] < CLEAR_AFTER + self.limits.repeat - 1}
        suspects = [n for n in self.order if n not in busy and (n in doubted or not (self.met[n] or self.rest))]
        free = [name for name in self.order if self.good[name] and name not in suspects]
        # Those first that are least known, and of these lemons: they may have to share few good nodes.
        worst = {name: self.rank.get(name, len(self.rank)) for name in suspects}
        for name in sorted(suspects, key=lambda one: (self.far[one], self.good[one], worst[one])):
            if name in busy:
                continue
            # Both ends are good with others, and it was never good: the connection. In turns with others, so that a
            # node that is slow at times shows.
            again = next((p for p in self.bad[name] if p not in busy and self._may_be_link(name, p, open_)), None)
            partner = again or self._partner(name, free, busy)
            partner = partner or self._partner(name, suspects, busy, near=not self.good[name])
            if partner is not None:
                tests.append((name, partner))
                busy |= {name, partner}
        return tests

    def third_tests(self, busy: set[str]) -> Round:
        """Return a third test of each node named after two, whose partners may both be slow at times."""
        tests: Round = []
        taken = set(busy)
        free = [name for name in self.unnamed() if self.good[name]]
        twice = (name for name in self.order if name in self.found - busy and self.met[name].total() == NAMED_AFTER)
        for name in () if self.limits.brief else twice:
            partner = self._partner(name, free, taken)
            if partner is not None:
                tests.append((name, partner))
                taken |= {name, partner}
        return tests

    def _partner(self, name: str, names: Sequence[str], busy: set[str], *, near: bool = False) -> str | None:
        """Return the next node in the order that it has not met, on another switch (near: its own) if there is one."""
        fit = [one for one in names if one not in busy and one not in self.met[name] and one != name]
        at = self.place[name]
        far = {one: (self.place[one] - at) % len(self.order) for one in fit}
        return min(
            fit,
            key=lambda one: (len(self.bad[one]), self._is_near(name, one) != near, one in self.rank, far[one]),
            default=None,
        )

    def _may_be_link(self, name: str, peer: str, open_: Sequence[frozenset[str]]) -> bool:
        enough = self._good_apart(name, peer) >= self.met[name][peer]
        return frozenset((name, peer)) in open_ and self._never_good(name, peer) and enough

    def _never_good(self, name: str, peer: str) -> bool:
        return self.bad[name][peer] == self.met[name][peer]

    def _good_apart(self, name: str, peer: str) -> int:
        """Return how often both were good with others; for nodes of two switches: with others across switches."""
        good = self.good if self._is_near(name, peer) else self.far
        return min(good[name], good[peer])

    def _is_near(self, name: str, peer: str) -> bool:
        return name in self.switch_of and self.switch_of[name] == self.switch_of.get(peer)

    def _doubtful_switches(self) -> dict[str, Nodes]:
        """Return the switches of which nearly all nodes are bad, with these nodes; not those that were tested."""
        bad = {switch: tuple(n for n in names if n in self.found) for switch, names in self.members.items()}
        return {
            switch: names
            for switch, names in bad.items()
            if switch not in self._inside and len(names) >= max(LEAST, OF_SWITCH * len(self.members[switch]))
        }

    def outcome(self) -> Outcome:
        """Return what is known at the end."""
        on_switch = tuple(name for switch in sorted(self.switches) for name in self.members[switch])
        named = tuple(name for name in self.order if name in self.found and name not in on_switch)
        left = {pair for pair in self.left if pair not in self.links}
        doubted = {name for pair in left for name in pair if not self.good[name]}
        untested = {name for name in self.order if not self.met[name] and not self.rest}
        unlike = self.noise > MOST_NOISE
        kinds = len(named) > max(2, TWO_KINDS * len(self.order))
        return Outcome(
            nodes=() if kinds else named,
            kinds=named if kinds else (),
            open=tuple(sorted(doubted | untested)),
            once=() if kinds or unlike else tuple(sorted(tuple(sorted(pair)) for pair in left if not pair & doubted)),
            links=tuple(sorted(tuple(sorted(pair)) for pair in self.links)),
            switches=tuple(sorted(self.switches)),
            nics=self.nics,
            together=self.together,
            rest=self.rest,
            bad=tuple(one for one in self.tests if not self.is_good(one)),
            on_switch=on_switch,
            reference_gb_s=self.reference,
            limit_gb_s=self.limit,
            noise=self.noise if unlike else None,
        )


def _noise(rates: Sequence[float | None]) -> float:
    """Return the standard deviation of the fastest pairs, as a part; the smaller estimate, which hides less."""
    spans = ((_part(rates, low), _part(rates, high), between) for low, high, between in SPANS)
    return min(((high - low) / between / low for low, high, between in spans if low and high), default=0.0)


def _part(values: Iterable[float | None], part: float) -> float | None:
    """Return the value below which that part of the values is."""
    known = sorted(value for value in values if value is not None)
    if len(known) < 2 or part in (0.0, 1.0):
        return (known[-1] if part else known[0]) if known else None
    return quantiles(known, n=100, method="inclusive")[round(part * 100) - 1]
