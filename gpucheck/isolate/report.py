"""What a search found, as findings and a report."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from gpucheck.isolate.search import MOST_NOISE, Limits, Outcome
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Verdict, counted, worst
from gpucheck.model.isolation import GroupTest, IsolatedNode, IsolationReport, State, Truth
from gpucheck.printable import some

CHECK = "isolate"
# The worst first: a node that returns wrong data once is not only slow.
BY_STATE: tuple[tuple[State, str], ...] = (
    ("wrong", "isolate.node-wrong"),
    ("hung", "isolate.node-hangs"),
    ("failed", "isolate.node-fails"),
    ("done", "isolate.node-slow"),
    ("silent", "isolate.node-silent"),
    ("unreadable", "isolate.node-unreadable"),
)
NOTHING_KNOWN = ("isolate.node-silent", "isolate.node-unreadable")
GOOD: tuple[Verdict, str | None] = (Verdict.PASS, None)
OTHERS = 3  # named in a sentence
PAIR = 2  # nodes
Cut = Literal["isolate.search-interrupted", "isolate.allocation-interrupted"]


class Searched(NamedTuple):
    """A search that ended. silent: why nodes did not answer before it. cut: the code of what ended it early."""

    rounds: Sequence[Sequence[GroupTest]]
    outcome: Outcome
    silent: Mapping[str, str]
    cut: Cut | None = None


def findings(tested: Searched, limits: Limits, nodes: int) -> tuple[Finding, ...]:
    """Return the findings of a search."""
    out = [*_accused(tested, limits), *_doubts(tested)]
    if tested.cut:
        out.append(_of("host").unknown(tested.cut, f"{len(tested.rounds)} complete rounds"))
    if not out and nodes == PAIR and limits.expected_gb_s is None:
        seen = ", ".join(describe(one) for each in tested.rounds for one in each)
        out.append(_of("host").unknown("isolate.nothing-to-compare", seen))
    if not out:
        tests, rounds = sum(map(len, tested.rounds)), len(tested.rounds)
        counted_tests = f"{tests} test{'s' * (tests != 1)} in {rounds} round{'s' * (rounds != 1)}"
        out.append(_of("host").passes(f"{nodes} nodes are equal: {counted_tests}"))
    return tuple(out)


def _of(name: str) -> Subject:
    return Subject(check=CHECK, name=name)


def _accused(tested: Searched, limits: Limits) -> Iterator[Finding]:
    outcome = tested.outcome
    pairs = [one for each in tested.rounds for one in each if len(one.nodes) == 2]
    low = f"{outcome.limit_gb_s:.3g} GB/s" if outcome.limit_gb_s is not None else "the limit"
    for name in outcome.nodes:
        tests = [one for one in pairs if name in one.nodes]
        # What a test with another named node shows may be of that node.
        alone = [one for one in tests if not set(one.nodes) - {name} & set(outcome.nodes)]
        tests = alone if any(one in outcome.bad for one in alone) else tests
        bad = [one for one in tests if one in outcome.bad]
        code = next(code for state, code in BY_STATE if any(one.state == state for one in bad))
        others = [peer for one in bad for peer in one.nodes if peer != name]
        verdict = Verdict.UNKNOWN if code in NOTHING_KNOWN else Verdict.FAIL
        evidence = tuple(f"{' - '.join(one.nodes)}: {describe(one)}" for one in bad)
        subject = _of(f"node:{name}").with_evidence(*evidence)
        seen = f"{len(bad)} of {len(tests)} tests bad, with {len(set(others))} nodes"
        # Values that the text does not need would keep equal findings apart.
        values: dict[str, Any] = (
            {"others": some(others, OTHERS), "node": name} if code in NOTHING_KNOWN else {"limit": low}
        )
        yield subject.finding(verdict, code, seen, **values)
    for a, b in outcome.links:
        yield _of(f"path:{a}-{b}").fails("isolate.path-slow", "each test of the two was bad")
    code = "isolate.switch-slow" if len(outcome.switches) != 2 else "isolate.between-switches"
    for name in outcome.switches:
        yield _of(f"switch:{name}").fails(code, "slow with nodes of other switches")
    for name in outcome.nics:
        yield _of(f"nic:{name}").fails("isolate.nic-slow-everywhere", "slow on nearly all nodes", device=name)
    if outcome.together:
        first, last = outcome.together[0], outcome.together[-1]
        seen = f"{len(outcome.together)} nodes, {first} to {last}"
        yield _of("host").fails("isolate.slow-together", seen, share=round(100 * limits.share, 1))


def _doubts(tested: Searched) -> Iterator[Finding]:
    """Yield what the search could not decide: never a PASS."""
    outcome = tested.outcome
    if outcome.kinds:
        seen = f"{len(outcome.kinds)} nodes: {some(outcome.kinds, OTHERS)}"
        yield _of("host").with_evidence(*outcome.kinds).unknown("isolate.two-kinds", seen)
    if outcome.noise is not None:
        seen = (
            f"the fastest pairs differ by {round(100 * outcome.noise)} %, expected at most {round(100 * MOST_NOISE)} %"
        )
        yield _of("host").unknown("isolate.pairs-differ", seen)
    for name, why in tested.silent.items():
        yield _of(f"node:{name}").unknown("isolate.not-reached", why, node=name)
    met = {name for each in tested.rounds for one in each if len(one.nodes) == 2 for name in one.nodes}
    for code, names in (
        ("isolate.reason-unknown", [name for name in outcome.open if name in met]),
        ("isolate.not-tested", [name for name in outcome.open if name not in met]),
    ):
        if names:
            seen = f"{len(names)} node{'s' * (len(names) != 1)}: {some(names, OTHERS)}"
            yield _of("host").with_evidence(*names).unknown(code, seen)
    for a, b in outcome.once:
        yield _of(f"path:{a}-{b}").warns("isolate.bad-once", "bad, then good", node=a, peer=b)
    explained = outcome.nodes or outcome.links or outcome.switches or outcome.nics or outcome.together
    if outcome.rest is False and not outcome.together:
        yield _of("host").unknown("isolate.together-unclear", "slow together")
    elif not explained and any(len(one.nodes) > 2 for one in outcome.bad):
        yield _of("host").unknown("isolate.together-unclear", "slow together once, later as expected")


def describe(test: GroupTest) -> str:
    """Return a result as text."""
    if test.state != "done" or test.busbw_gb_s is None:
        return f"{test.state}: {test.detail}" if test.detail else test.state
    late = f", {test.latency_us:.0f} us" if test.latency_us is not None else ""
    return f"{test.busbw_gb_s:.3g} GB/s{late}"


def report(
    tested: Searched,
    limits: Limits,
    nodes: Sequence[str],
    *,
    truth: Truth | None,
    host: str,
    started: str,
    seconds: float,
) -> IsolationReport:
    """Return the report of a search. nodes: that took part. truth: of a simulated fleet."""
    outcome, found, every = tested.outcome, findings(tested, limits, len(nodes)), (*nodes, *tested.silent)
    # Ends of what is slow are not faulty themselves.
    cause = dict.fromkeys((*outcome.on_switch, *outcome.together), "switch-slow")
    cause |= {name: "path-slow" for pair in outcome.links for name in pair}
    states: dict[str, tuple[Verdict, str | None]] = {name: (Verdict.WARN, key) for name, key in cause.items()}
    states |= dict.fromkeys((*outcome.kinds, *outcome.open), (Verdict.UNKNOWN, None))
    states |= {one.subject[5:]: (one.verdict, one.cause) for one in found if one.subject.startswith("node:")}
    measured: dict[str, list[float | None]] = {name: [] for name in every}
    for test in (one for each in tested.rounds for one in each if len(one.nodes) == 2):
        for name in test.nodes:
            measured[name].append(test.busbw_gb_s)
    is_whole = limits.expected_gb_s is not None or len(every) < 3
    return IsolationReport(
        host=host,
        simulated=truth is not None,
        started=started,
        seconds=round(seconds, 3),
        nodes=tuple(
            IsolatedNode(name=name, verdict=verdict, cause=key, measured=tuple(measured[name]))
            for name in every
            for verdict, key in (states.get(name, GOOD),)
        ),
        rounds=tuple(tuple(one.nodes for one in each) for each in tested.rounds),
        tests=sum(map(len, tested.rounds)),
        results=tuple(tuple(each) for each in tested.rounds),
        reference_gb_s=outcome.reference_gb_s,
        limit_gb_s=outcome.limit_gb_s,
        unproven=() if is_whole else ("all nodes together (state their bandwidth with --expected)",),
        truth=truth,
        verdict=worst(one.verdict for one in found),
        findings=found,
        counts=counted(found),
    )
