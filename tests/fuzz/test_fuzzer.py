"""The fuzzer finds planted defects: a reader that breaks, a quadratic one, one that leaks an escape, one that dies."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from gpucheck.model import Finding, Verdict
from tests.fuzz import formats, hostile, limits, oracles, runner
from tests.fuzz.cases import made
from tests.fuzz.minimise import minimised
from tests.fuzz.oracles import ROOT, Wrong, message, no_better, no_defect, refusing, simulated, terminal
from tests.fuzz.outcome import SLOW, outcome
from tests.fuzz.results import again, described, saved, table
from tests.fuzz.target import Target, all_targets, chosen
from tests.fuzz.worker import Plan

SEEDS = (b'{"name": "a", "size": 1}', b'{"name": "b", "size": 2, "more": [1, 2, 3]}')
REFUSALS = (ValueError, UnicodeDecodeError, RecursionError, msgspec.DecodeError, msgspec.ValidationError)


def fine(data):
    with refusing(*REFUSALS):
        msgspec.json.decode(data)


def breaks(data):
    with refusing(*REFUSALS):
        document = msgspec.json.decode(data)
        if isinstance(document, dict):
            document["size"]


def quadratic(data):
    words = data.split(b"1")
    for word in words:
        sum(word == other for other in words)


def leaks(data):
    terminal(f"name: {data.decode(errors='replace')}", "a text")


def greedy(data):
    if len(data) > 40:
        bytearray(48 << 20)


def asks_for_all_memory(data):
    if len(data) > 40:
        bytearray(100 << 30)


def dies(data):
    if len(data) > 40:
        ctypes.string_at(0)


def waits(data):
    if len(data) > 40:
        time.sleep(3600)


def planted(run, form="json", seeds=SEEDS):
    return Target(run.__name__, run, lambda: seeds, form, 1000)


def fuzzed(tmp_path, *targets, cases=300, seed=1, jobs=1):
    return runner.run(Plan(targets, seed, 60.0, cases, jobs, tmp_path))


def kinds(result):
    return {(one.failure.target, one.failure.kind) for one in result.found}


def test_planted_defects_are_found_and_a_sound_reader_is_not_blamed(tmp_path):
    targets = [planted(run) for run in (fine, breaks, leaks)]

    result = fuzzed(tmp_path, *targets, jobs=2)

    found = kinds(result)
    assert ("breaks", "KeyError") in found
    assert ("leaks", "a text with a control, directional or invisible character") in found
    assert ("leaks", "a text with a line that the input wrote") in found
    assert not [one for one in found if one[0] == "fine"]
    assert result.inputs == {"fine": 300, "breaks": 300, "leaks": 300}


def test_quadratic_work_is_found(tmp_path, monkeypatch):
    """Confirmed by a second run of the same input, which is slow again."""
    monkeypatch.setattr(limits, "BASE_S", 0.1)
    monkeypatch.setattr(limits, "S_PER_BYTE", 1e-7)
    result = fuzzed(tmp_path, planted(quadratic, "text", (b"x1" * 400,)), cases=60)

    assert kinds(result) == {("quadratic", SLOW)}
    (found,) = result.found
    assert "test_fuzzer.py quadratic" in found.failure.where or "genexpr" in found.failure.where


def test_an_input_that_was_slow_once_is_no_failure(monkeypatch):
    """As with the import of a module, which begins again where it was interrupted, until it is through once."""
    monkeypatch.setattr(limits, "BASE_S", 0.05)
    slow = [True]

    def work(data):
        end = time.process_time() + (0.1 if data == b"once" else 10)
        while slow and time.process_time() < end:
            pass
        slow.clear()

    target = Target("late", work, lambda: SEEDS, "json", 1)
    assert outcome(target, b"always").kind == SLOW
    assert outcome(target, b"once") is None


@pytest.mark.parametrize(("run", "kind"), [(greedy, "large"), (asks_for_all_memory, "MemoryError")])
def test_memory_beyond_the_bound_is_found(run, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "BASE_BYTES", 32 << 20)
    assert kinds(fuzzed(tmp_path, planted(run), cases=60)) == {(run.__name__, kind)}


def test_a_worker_that_dies_is_a_failure_and_the_others_go_on(tmp_path):
    result = fuzzed(tmp_path, planted(dies), planted(fine), cases=60)

    assert kinds(result) == {("dies", "the process ended: SIGSEGV")}
    assert result.found[0].failure.where == "tests/fuzz/test_fuzzer.py dies" or result.found[0].failure.where == ""
    assert result.inputs["fine"] == 60


def test_a_worker_that_waits_for_ever_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "HANGS_S", 2.0)

    result = fuzzed(tmp_path, planted(waits, seeds=(*SEEDS, b"[" + b"1, " * 20 + b"1]")), cases=3)

    assert kinds(result) == {("waits", "no end")}


def test_the_same_seed_makes_the_same_inputs():
    target = planted(fine)
    inputs = [made(target, 7, case) for case in range(200)]

    assert inputs == [made(planted(fine), 7, case) for case in range(200)]
    assert inputs[:2] == list(SEEDS)
    assert len({*inputs}) > 150
    assert inputs[2:] != [made(target, 8, case) for case in range(2, 200)]


def test_the_inputs_of_a_target_do_not_change_with_the_process(tmp_path):
    """What failed in a run of many targets and processes is made again by its three names alone."""
    words = [sys.executable, "-m", "tests.fuzz", "--target", "openpgp-key", "--seed", "5", "--case", "900"]
    environment = {**os.environ, "PYTHONHASHSEED": "123"}
    done = subprocess.run([*words, "-o", tmp_path / "x"], cwd=ROOT, env=environment, capture_output=True, check=False)

    (target,) = chosen(["openpgp-key"])
    assert done.returncode in (0, 1), done.stderr.decode()
    assert (tmp_path / "x").read_bytes() == made(target, 5, 900)


def test_a_failing_input_is_made_shorter_and_kept_with_the_way_to_make_it_again(tmp_path):
    result = fuzzed(tmp_path, planted(breaks))
    (found,) = result.found

    path = saved(found, 1, tmp_path)

    assert len(found.data) <= 20
    assert path.read_bytes() == found.data
    assert again(found, 1) in path.with_suffix(".txt").read_text()
    assert described(found).startswith("breaks: KeyError at tests/fuzz/test_fuzzer.py:")
    assert table(result).splitlines()[1].split()[:3] == ["breaks", "300", "1"]


def test_shorter_inputs_keep_what_fails():
    assert minimised(b"a\nb\nxyz\nc\nd", lambda data: b"y" in data) == b"y"


@pytest.mark.parametrize("text", ["", "two\nlines", "\x1b[2J", "a\u202eb"], ids=["empty", *"123"])
def test_messages_that_cannot_be_shown_are_wrong(monkeypatch, text):
    monkeypatch.setattr(oracles, "shown", lambda error: f"Error: {error}\n")  # a product that prints what it is given
    with pytest.raises(Wrong):
        message(ValueError(text))


def test_a_subclass_of_a_documented_builtin_is_a_defect():
    """int() and decode() raise them from anywhere; a reader that means ValueError raises ValueError."""
    with pytest.raises(UnicodeDecodeError), refusing(ValueError):
        b"\xff".decode()
    with refusing(ValueError):
        raise ValueError("no labels in it. Write: host,rack")


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (formats.strict_json, '{"a": null}', '{"a": NaN}'),
        (formats.strict_json, "[]", "[] x"),
        (formats.strict_xml, "<a>&lt;</a>", "<a>&#1;</a>"),
        (formats.strict_xml, "<a/>", f"<a><{hostile.MARK}/></a>"),
        (formats.strict_prometheus, "# HELP a b\n# TYPE a gauge\na 1\n", "# HELP a b\n# TYPE a gauge\na 1\na 2\n"),
        (formats.strict_prometheus, '# HELP a b\n# TYPE a gauge\na{b="\\n"} 1\n', "# HELP a b\n# TYPE a gauge\nb 1\n"),
        (
            formats.strict_prometheus,
            "# HELP a b\n# TYPE a gauge\na 1\n# HELP b b\n# TYPE b gauge\nb 1\n",
            "# HELP a b\n# TYPE a gauge\na 1\n# HELP a b\n# TYPE a gauge\na 2\n",
        ),
        (
            formats.strict_prometheus,
            '# HELP a b\n# TYPE a gauge\na{b="c"} 1\n',
            '# HELP a b\n# TYPE a gauge\na{b="c",b="d"} 1\n',
        ),
        (formats.strict_prometheus, "# HELP a b\n# TYPE a gauge\na 1\n", "# HELP a b\n# TYPE a gauge\na one\n"),
        (formats.strict_prometheus, "# HELP a b\n# TYPE a gauge\na 1\n", "# HELP 1 b\n# TYPE 1 gauge\n1 1\n"),
        (formats.nagios, "GPUCHECK OK - fine | a=1\n", "GPUCHECK OK - a | b | c=1\n"),
        (formats.nagios, "GPUCHECK OK - fine | a=1\n", "GPUCHECK OK - fine | a=1\nx\n"),
        (formats.strict_csv, "a,b\nc,d\n", "a,b\nc\n"),
        (formats.strict_csv, f"a\n'{hostile.FORMULA}\n", f"a\n{hostile.FORMULA}\n"),
        (formats.html, "<p>&lt;fuzz-marker onerror</p>", f"<p>{hostile.TAG}</p>"),
        (formats.html, f'<p title="{hostile.MARK}">a</p>', f'<p title="" {hostile.MARK}=1>a</p>'),
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


def test_a_check_that_broke_is_a_failure_with_its_line():
    """Such a report is well-formed: it is UNKNOWN and says why, so only this rule sees it."""
    from gpucheck.run import Step, verify
    from tests.fakes import FakeHost

    def broken(host):
        raise KeyError("x")

    report = verify(FakeHost(), [Step("planted", frozenset(), broken, 1.0, 0.1)])

    with pytest.raises(Wrong) as caught:
        no_defect(report.findings)
    assert caught.value.rule == "a check broke: KeyError"


def test_every_target_has_seeds_of_which_the_command_line_can_make_inputs():
    assert len(all_targets()) > 30
    with pytest.raises(LookupError):
        chosen(["no-such-target"])
    assert [target.name for target in chosen(["topology"])] == ["topology"]
    assert len(chosen(["import-"])) > 4


def test_a_run_that_is_terminated_leaves_no_process_and_no_file(tmp_path):
    run = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz", "--target", "labels-csv", "--seconds", "600", "-o", tmp_path], cwd=ROOT
    )

    def own() -> list[Path]:
        return [entry for base in ("/dev/shm", "/tmp") for entry in Path(base).glob(f"gpucheck-fuzz-{run.pid}-*")]

    until = time.monotonic() + 60
    while not own() and time.monotonic() < until:
        time.sleep(0.1)
    (folder,) = own()
    worker = int(folder.name.split("-")[3])
    run.terminate()

    assert run.wait(30) == 128 + signal.SIGTERM
    assert not own()
    assert not Path(f"/proc/{worker}").exists()


def test_nothing_on_this_machine_is_measured_or_started(tmp_path, monkeypatch):
    """The command line in a worker: hostile arguments never reach the host that the fuzzer runs on."""
    code = (
        "from tests.fuzz import product; product.prepare(); import os\n"
        "for words in (['verify'], ['topo'], ['verify', '--simulate', 'p100-pcie-x2']):\n"
        "    ended = product.command(words); print(ended.status, ended.err.strip())\n"
        "product.remove_scratch()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["3 Error: The fuzzer has no host."] * 3
