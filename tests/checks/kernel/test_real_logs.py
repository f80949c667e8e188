"""The kernel log held to real lines: incidents with a known outcome, every class of message, and healthy hosts."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpucheck.checks.kernel import log as check
from gpucheck.checks.kernel._events import Machine, events, messages, named
from gpucheck.host.kernel_log import ABOUT_GPUS
from gpucheck.host.recording.redaction import of_recording, redacted
from gpucheck.knowledge import causes
from gpucheck.knowledge.messages import messages as classes
from gpucheck.model import KernelLine, KernelLog, Verdict
from tests.fakes import facts, kernel_log
from tests.host.recording.test_recording import written
from tests.imports.logs import read
from tests.shared import from_yaml

DATA = Path(__file__).parents[2] / "data" / "kernel_log"
CASES = [from_yaml(path) for path in sorted((DATA / "cases").glob("*.yml"))]
ROWS = from_yaml(DATA / "messages.yml")["rows"]
BENIGN = from_yaml(DATA / "benign.yml")["lines"]
LOUD = (Verdict.WARN, Verdict.FAIL)


def judged(text):
    return list(check.of_log(read(text.encode())))


def understood(text):
    said = messages(read(text.encode()).lines)
    return events(said, Machine(*named(said))).events


def words(finding):
    return " ".join(map(str, (finding.subject, finding.seen, finding.why, finding.fix, *finding.evidence))).lower()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_real_incident_is_told_as_it_was(case):
    """The keys of expect are those of the collection."""
    expect, findings = case["expect"], judged(case["raw"])
    loud = [finding for finding in findings if finding.verdict in LOUD]
    worst = "fail" if any(f.verdict is Verdict.FAIL for f in loud) else "warn" if loud else "pass"
    said = {finding.cause for finding in findings}
    everything = " ".join(map(words, findings))

    assert worst in expect["verdict"]
    assert all(said & set(group) for group in expect.get("causes_any", []))
    assert not said & set(expect.get("causes_never", []))
    assert all(any(text.lower() in everything for text in group) for group in expect.get("text_any", []))
    assert not {f.subject for f in findings} & set(expect.get("subjects_never", []))
    if expect.get("subjects_any"):
        assert {f.subject for f in findings} & set(expect["subjects_any"])
    for xid in expect.get("xid", []):
        of_it = [f for f in loud if f.subject == f"gpu:{xid['gpu']}" and re.search(rf"Xid {xid['code']}\b", f.seen)]
        assert (of_it[0].verdict.value if of_it else "quiet") in xid["verdict"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["key"])
def test_every_class_of_message_is_recognised_in_a_real_line(row):
    """With its subject, verdict and cause, and by its own class."""
    (finding,) = judged(row["raw"])

    assert row["source"]
    assert row["key"] in {event.key for event in understood(row["raw"])}
    assert [finding.subject, finding.verdict.value, finding.cause] == row["says"]
    assert finding.values["message"] == row["key"]


def test_an_error_of_a_device_that_may_be_no_gpu_is_a_possible_cause():
    (finding,) = judged("[    1.0] pcieport 0000:00:01.0: DPC: containment event, status:0x1f01 source:0x0000\n")

    assert (finding.verdict, finding.code) == (Verdict.WARN, "kernel.unknown-device")
    assert (finding.confidence, finding.values["device"]) == ("possible", "0000:00:01.0")


def test_no_class_is_without_a_real_line():
    """A class that is added comes with one."""
    assert {row["key"] for row in ROWS} == {row.key for row in classes() if row.verdict != "note"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["key"])
def test_the_live_reader_lets_every_class_through(row):
    """The ring is filtered before it is judged."""
    matched = [event.message for event in understood(row["raw"]) if event.key == row["key"]]

    assert any(ABOUT_GPUS.search(said.text) for said in matched)


@pytest.mark.parametrize("row", classes(), ids=lambda row: row.key)
def test_a_class_says_what_to_do(row):
    assert row.source
    if row.verdict != "note":
        assert row.why
        assert row.steps
    assert row.cause is None or row.cause in causes()
    keys = {other.key for other in classes()} | {"start", "any"}
    assert all(name in keys or name.startswith("xid:") for name in row.follows)


OF_AN_APPLICATION = re.compile(r"Xid.{1,30}\): (?:13|31|43|45),")


@pytest.mark.parametrize("row", BENIGN, ids=lambda row: row["line"][:60])
def test_a_benign_line_stays_silent(row):
    (finding,) = judged(f"[    0.000001] Linux version 6.8.0\n{row['line']}\n")

    assert row["source"]
    if OF_AN_APPLICATION.search(row["line"]):
        assert (finding.verdict, finding.cause, finding.action) == (Verdict.UNKNOWN, None, "none")
    else:
        assert finding.verdict is Verdict.PASS


def test_all_benign_lines_together_stay_silent():
    """Nothing is put together of lines that have nothing to do with each other."""
    lines = [row["line"] for row in BENIGN if not OF_AN_APPLICATION.search(row["line"])]
    (finding,) = judged("".join(f"{line}\n" for line in lines))

    assert len(lines) >= 40
    assert finding.verdict is Verdict.PASS


PIECES = st.sampled_from([*(row["raw"] for row in ROWS), *(row["line"] + "\n" for row in BENIGN)])
SOUP = st.lists(
    PIECES | st.text(max_size=80) | st.from_regex(r"NVRM: (Xid|GPU) [(]?.{0,60}", fullmatch=True), max_size=12
)


@given(SOUP)
def test_a_subject_is_never_invented(parts):
    """The host, or a bus id that stands in the text."""
    text = "\n".join(parts)
    log = KernelLog(lines=tuple(KernelLine(text=line) for line in text.split("\n")), source="test")

    for finding in check.of_log(log):
        kind, _, bus = finding.subject.partition(":")
        domain, _, rest = bus.partition(":")
        assert kind in ("host", "gpu", "link", "nic")
        assert kind == "host" or rest.removesuffix(".0") in text.lower()
        assert kind == "host" or domain == "0000" or domain in text.lower()
        assert finding.verdict in (*LOUD, Verdict.UNKNOWN, Verdict.PASS)


RESET_REQUIRED = "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062)\n"
# A GPU that is bound to another driver on purpose explains the rest, and is a warning.
TAKES_BACK = re.compile(r"loading NVIDIA UNIX|Started|registered|RPC service|is already bound to")


@given(st.lists(PIECES, max_size=12), st.sampled_from([row["raw"] for row in ROWS if row["says"][1] == "fail"]))
@example([row["raw"] for row in ROWS if "Corrected error received" in row["raw"]], RESET_REQUIRED)
def test_an_error_stays_one_among_other_messages(parts, error):
    """What follows from another error is folded into it, never lost with it."""
    text = "".join(parts)
    if TAKES_BACK.search(text):
        return
    findings = judged(f"[    1.000000] x\n{error}{text}")

    assert any(finding.verdict is Verdict.FAIL for finding in findings)


REAL = [*(case["raw"] for case in CASES), *(row["raw"] for row in ROWS), *(row["line"] for row in BENIGN)]


@pytest.mark.parametrize("text", REAL, ids=lambda text: text[:50])
def test_redaction_changes_no_finding(text):
    """The same checks, subjects, verdicts and causes; only names, UUIDs and serial numbers in the evidence differ."""
    log = kernel_log(*text.splitlines())
    kept = msgspec.structs.replace(written(facts(), ()), kernel_log=log)
    after = redacted(kept, of_recording(kept)).kernel_log

    def outcome(judged_log):
        said = check.of_log(judged_log)
        return [(f.check, f.subject, f.verdict, f.cause, f.confidence, f.seen, f.why, f.fix) for f in said]

    assert outcome(after) == outcome(log)
