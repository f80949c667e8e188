"""Some hostile inputs for every reader, the same in every run of one tree: each ends in time, in a documented way.

``make fuzz`` goes on with inputs that no run has seen before.
"""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpucheck.model import Finding, Verdict
from tests.fuzz import hostile, oracles, strategies
from tests.fuzz.__main__ import survives
from tests.fuzz.oracles import Wrong, no_better, no_defect, refusing, simulated, terminal
from tests.fuzz.strategies import inputs
from tests.fuzz.target import Target, all_targets, bounded_memory, run
from tests.shared import sampled

TARGETS = {target.name: target for target in all_targets()}
EXAMPLES = (15, 200)
# Inputs that make fuzz found: TARGET.NUMBER, each a defect once.
FOUND = sorted((Path(__file__).parent / "found").iterdir())


@pytest.fixture(autouse=True)
def cache_of_the_run(monkeypatch, cache):
    """Seeds are made with the simulator's libraries."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


def in_sample(number, name):
    """Each second reader; of the kinds of pastes, which diagnose-pasted recognizes all together, each eighth."""
    return number % (8 if name.startswith("import-") else 2) == 0


@pytest.mark.slow
@pytest.mark.parametrize("count", sampled(EXAMPLES, (0,)))
@pytest.mark.parametrize("name", sampled(TARGETS, in_sample))
def test_hostile_input_is_refused_or_read_cleanly(name, count):
    """Only documented errors, on one clean line; clean outputs of every format; bounded time and memory."""
    target = TARGETS[name]

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(inputs(target))
    def check(data):
        run(target, data)

    with bounded_memory():
        for data in (*target.seeds(), *target.attacks()):
            run(target, data)
        check()


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_an_input_that_was_a_defect_is_none(path):
    run(TARGETS[path.stem], path.read_bytes())


def breaks(data):
    if b"KEY" in data:
        raise KeyError("planted")


def ends(data):
    if b"KEY" in data:
        raise SystemExit(3)


@pytest.mark.parametrize("planted", [breaks, ends])
def test_a_planted_defect_is_found_made_small_and_kept(planted, tmp_path, capsys, monkeypatch):
    key = st.builds(strategies.Edit, strategies.PLACES, strategies.PLACES, st.integers(0, 64), st.just(b"KEY"))
    monkeypatch.setattr(strategies, "EDITS", st.lists(key, max_size=6))
    target = Target("planted", planted, lambda: (b"some text\nof two lines",), "text")

    assert not survives(target, 1, tmp_path, Counter())
    assert (tmp_path / "planted.input").read_bytes().count(b"KEY") == 1
    assert "planted.input" in capsys.readouterr().err


def test_a_subclass_of_a_documented_builtin_is_a_defect():
    """int() and decode() raise them from anywhere; a reader that means ValueError raises ValueError."""
    with pytest.raises(UnicodeDecodeError), refusing(ValueError):
        b"\xff".decode()
    with refusing(ValueError):
        raise ValueError("no labels in it. Write: host,rack")
    with pytest.raises(Wrong), refusing(ValueError):
        raise ValueError


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (oracles.strict_json, '{"a": null}', '{"a": NaN}'),
        (oracles.strict_json, "[]", "[] x"),
        (oracles.strict_xml, "<a>&lt;</a>", "<a>&#1;</a>"),
        (oracles.strict_xml, "<a/>", f"<a><{hostile.MARK}/></a>"),
        (oracles.strict_prometheus, "# HELP a b\n# TYPE a gauge\na 1\n", "# HELP a b\n# TYPE a gauge\na 1\na 2\n"),
        (oracles.strict_prometheus, "# HELP a b\n# TYPE a gauge\na 1\n", "# HELP a b\n# TYPE a gauge\na one\n"),
        (oracles.nagios, "GPUCHECK OK - fine | a=1\n", "GPUCHECK OK - a | b | c=1\n"),
        (oracles.strict_csv, "a,b\nc,d\n", "a,b\nc\n"),
        (oracles.strict_csv, f"a\n'{hostile.FORMULA}\n", f"a\n{hostile.FORMULA}\n"),
        (oracles.html, "<p>&lt;fuzz-marker onerror</p>", f"<p>{hostile.TAG}</p>"),
        (oracles.html, f'<p title="{hostile.MARK}">a</p>', f'<p title="" {hostile.MARK}=1>a</p>'),
        (terminal, "\x1b[31mFAIL\x1b[0m\n  FORGEDLINE\n", "\x1b]0;x\x07"),
        (terminal, "fine\n", f"fine\n{hostile.FORGED} PASS\n"),
        (simulated, "SIMULATED hardware", "hardware"),
    ],
)
def test_each_rule_of_an_output_can_fail(check, good, bad):
    check(good, "this")

    with pytest.raises(Wrong):
        check(bad, "this")


def test_a_verdict_that_is_better_than_a_finding_is_wrong():
    failed = Finding(check="nvlink", verdict=Verdict.FAIL, subject="host", why="a link is down", fix="reset")

    no_better(Verdict.FAIL, [failed], "a report")
    with pytest.raises(Wrong):
        no_better(Verdict.PASS, [failed], "a report")


def test_a_check_that_broke_is_a_failure():
    """Such a report is well-formed: it is UNKNOWN and says why, so only this rule sees it."""
    from gpucheck.run.verification import RunStep, verify
    from tests.fakes import facts

    def broken(host):
        raise KeyError("x")

    report = verify(facts(), [RunStep("planted", frozenset(), broken, 1.0, 0.1)])

    with pytest.raises(Wrong, match="a check broke: KeyError"):
        no_defect(report.findings)
