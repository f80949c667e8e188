"""One truth: no two places of a report, in any of its formats, say different things of one thing.

Reports of healthy, limited and faulty machines: pasted, verified and measured in simulation, each made once.
"""

import json
import re
from html import unescape
from pathlib import Path

import msgspec
import pytest

from gpucheck import imports
from gpucheck.model import Report, Verdict
from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.model.collectives import CollectivesReport
from gpucheck.model.compute import ComputeReport
from gpucheck.render import fleet
from gpucheck.render.formats import render, show, to_json
from gpucheck.render.subjects import collectives, compute, copies
from gpucheck.render.subjects import diagnosis as subject
from gpucheck.run.pastes import diagnosis
from tests.fleet.reports import bad, merged, report, steady
from tests.shared import from_yaml, sampled

PASTES = sorted((Path(__file__).parents[1] / "data" / "pastes").glob("*.yml"))
VERIFIED = (
    ("hgx-h100-x8",),
    ("hgx-h100-x8", "--fault", "gpu-lost:gpu=2"),
    ("hgx-h100-x8", "--fault", "nvlink-down:gpu=2,link=3"),
    ("p100-pcie-x2", "--fault", "hot:gpu=1"),
)
P100S = ("--simulate", "p100-pcie-x2")
H100S = ("--simulate", "hgx-h100-x8")
QUICK = ("bandwidth", "--level", "quick", *P100S)
MEASURED = (
    QUICK,
    (*QUICK, "--fault", "p2p-slow:pair=0-1,percent=40"),
    ("compute", *H100S),
    ("compute", *H100S, "--fault", "hot:gpu=2"),
    ("collectives", *P100S, "--sizes", "1K"),
)
SUBJECTS = {
    "bandwidth": (BandwidthReport, copies),
    "compute": (ComputeReport, compute),
    "collectives": (CollectivesReport, collectives),
}
TROUBLE = ("fail", "warn", "unknown")
# What rose between two readings is stated as it was read; its cause is what is possible.
HEDGES = re.compile(
    r"suspect|\bmay\b|might|possibl|probabl|likely|usual|unknown|not known|\bor\b|\bif\b|does not name|not read|"
    r"between readings",
    re.IGNORECASE,
)


def printed(capsys, *words):
    from tests.cli import commands

    return commands.run(capsys, *words, "--format", "json")[1]


def of_paste(path):
    case = from_yaml(path)
    found = diagnosis([imports.read_all(case["raw"].encode(), "paste.txt")], sources=("paste.txt",))
    forms = {
        form: show(subject.document(found, everything=form == "html"), form) for form in ("text", "html", "markdown")
    }
    return {"json": to_json(found), **forms}


def of_verify(capsys, *words):
    out = printed(capsys, "verify", "--level", "quick", "--simulate", *words)
    report = msgspec.json.decode(out, type=Report)
    return {form: render(report, form) for form in ("json", "text", "html", "markdown", "junit")}


def of_measurement(capsys, *words):
    kind, module = SUBJECTS[words[0]]
    out = printed(capsys, *words)
    document = module.document(msgspec.json.decode(out, type=kind))
    return {"json": out, **{form: show(document, form) for form in ("text", "html", "markdown")}}


def complaints(forms):
    answer = json.loads(forms["json"])
    findings = [*answer["findings"], *(one for machine in answer.get("machines", ()) for one in machine["findings"])]
    return [
        *_verdicts(forms, answer["verdict"]),
        *_problems(forms),
        *_one_thing(findings),
        *_marks(forms["html"], findings),
        *(
            f"stated: {one['why']}"
            for one in findings
            if one["confidence"] == "possible" and not HEDGES.search(one["why"])
        ),
        *(f"probability: {hit}" for text in forms.values() for hit in re.findall(r"\w-\w+ \(\d+ ?%\)", text)),
    ]


def _plain(text):
    return re.sub(r"\s+", " ", re.sub(r"\x1b\[[0-9;]*m", "", unescape(re.sub(r"<[^>]*>", " ", text)))).strip()


def _verdicts(forms, verdict):
    last = forms["text"].strip().splitlines()[-1]
    told = {
        "text": _plain(last).split()[0].lower(),
        "html": re.search(r'class="badge (\w+)"', forms["html"])[1],
        "markdown": re.search(r"\b(PASS|WARN|FAIL|UNKNOWN|SKIP)\b", forms["markdown"])[1].lower(),
    }
    yield from (f"{form}: {word}, JSON: {verdict}" for form, word in told.items() if word != verdict)
    if "junit" in forms:
        bad = re.search(r"<(?:failure|error)\b", forms["junit"]) is not None
        yield from ["JUnit has no failure"] if verdict in ("warn", "fail") and not bad else []
        yield from ["JUnit has a failure"] if verdict == "pass" and bad else []


def _problems(forms):
    """The same problems with the same first line in each, and each in one color."""
    articles = re.findall(r'<article class="finding (\w+)".*?data-verdict="(\w+)">(.*?)</article>', forms["html"], re.S)
    for color, verdict, inside in articles:
        badge = re.search(r'class="badge (\w+)"', inside)[1]
        if {color, verdict, badge} != {verdict}:
            yield f"colors {color}, {verdict}, {badge}"
    of_html = {(one[1], _plain(re.search(r'class="seen">(.*?)</p>', one[2], re.S)[1])) for one in articles}
    text, markdown = _plain(forms["text"]), _plain(forms["markdown"].replace("\\", "").replace("`", ""))
    for verdict, seen in of_html:
        if verdict in TROUBLE:
            yield from [f"not in text: {seen}"] if seen not in text else []
            yield from [f"not in Markdown: {seen}"] if _letters(seen) not in _letters(markdown) else []
    problems = {form: re.search(r"(\d+) problems?\b", _plain(forms[form])) for form in ("text", "html", "markdown")}
    counts = {form: match[1] for form, match in problems.items() if match}
    if len(set(counts.values())) > 1:
        yield f"problems: {counts}"


def _letters(text):
    return re.sub(r"[^\w.%]+", " ", text)


def _one_thing(findings):
    """One check of one thing has one verdict and one expected value."""
    expected, verdicts = {}, {}
    for one in findings:
        if one["unit"] != "GB/s" and "GB/s" not in str(one["seen"]):
            continue
        key = (one["check"], one["subject"], re.sub(r"[\d.]+", "", str(one["seen"])))
        expected.setdefault(key, set()).add(str(one["wanted"]))
        verdicts.setdefault(key[:2], set()).add(one["verdict"])
    yield from (f"{key}: expected {values}" for key, values in expected.items() if len(values) > 1)
    yield from (
        f"{key}: {values}"
        for key, values in verdicts.items()
        if key[1] != "host" and "pass" in values and len(values) > 1
    )


def _marks(page, findings):
    """Each mark in a matrix has a finding that is no better."""
    marked = set(re.findall(r'<td class="[^"]*\b(low|warn|fail)\b', page))
    worst = {one["verdict"] for one in findings}
    yield from ["marked as failed, no FAIL"] if "fail" in marked and "fail" not in worst else []
    yield from ["marked, no problem"] if marked and not worst & set(TROUBLE) else []


@pytest.mark.parametrize("path", sampled(PASTES, lambda number, _: number % 4 == 0), ids=lambda path: path.stem)
def test_a_diagnosis_never_contradicts_itself(path):
    assert complaints(of_paste(path)) == []


@pytest.mark.parametrize("words", sampled([(words,) for words in VERIFIED], (1, 3)), ids=" ".join)
def test_a_verification_never_contradicts_itself(words, capsys):
    assert complaints(of_verify(capsys, *words)) == []


@pytest.mark.slow
@pytest.mark.parametrize("words", sampled([(words,) for words in MEASURED], (1, 3)), ids=" ".join)
def test_a_measurement_never_contradicts_itself(words, capsys):
    assert complaints(of_measurement(capsys, *words)) == []


FLEETS = {
    "healthy": steady(),
    "faulty": [
        *steady(),
        report("slow", 340.0),
        *(
            report(f"down{n}", verdict=Verdict.FAIL, findings=(bad(), bad("driver", None, Verdict.WARN)))
            for n in (1, 2)
        ),
    ],
}


@pytest.mark.parametrize("name", FLEETS)
def test_a_fleet_never_contradicts_itself(name):
    """Verdict, hosts of each verdict and first lines of problems are the same in each form."""
    made = merged(*FLEETS[name])
    forms = {form: fleet.render(made, form) for form in ("json", "text", "html", "markdown")}
    answer, page = json.loads(forms["json"]), json.loads(forms["html"].partition('id="data">')[2].split("</script>")[0])
    text, markdown = _plain(forms["text"]), _plain(forms["markdown"].replace("\\", "").replace("`", ""))
    counts = {verdict: count for verdict, count in answer["counts"].items() if count}

    assert list(_verdicts({**forms, "html": f'class="badge {page["verdict"]}"'}, answer["verdict"])) == []
    assert {row["verdict"] for row in answer["hosts"]} == counts.keys()
    assert {verdict: count for verdict, count in page["counts"].items() if count} == counts
    for verdict, count in counts.items():
        assert f"{count} {verdict}" in text.rpartition(answer["verdict"].upper())[2]
    for problem in {one["seen"] for row in answer["hosts"] for one in row["problems"] if one["check"] != "fleet"}:
        assert problem in text
        assert problem in markdown
    assert len(answer["outliers"]) == len(page["outliers"])
