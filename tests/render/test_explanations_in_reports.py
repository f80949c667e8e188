"""The pages of verify and bandwidth: the explanations that were weighed, and the page of copies alone."""

from typing import NamedTuple

import msgspec
import pytest
from lxml import html
from msgspec import UNSET

from gpucheck.cli._shared.redaction import of_diagnosis
from gpucheck.model.diagnosis.ranking_record import ranking_record
from gpucheck.render.bandwidth import to_html as bandwidth_page
from gpucheck.render.diagnosis import markdown as diagnosis_markdown
from gpucheck.render.diagnosis import to_markdown
from gpucheck.render.markdown import Markdown
from gpucheck.render.ranking.predicted import readings
from gpucheck.render.report.html import to_html
from tests.render.judgements import bus_id, explained, finding, narrow, winner
from tests.render.pages import PAGES, bandwidth, diagnosis
from tests.render.reports import copies, report


@pytest.mark.parametrize("name", ["explained", "bandwidth", "explained-healthy"])
def test_a_page_draws_what_was_weighed(name):
    tree = html.fromstring(PAGES[name])

    assert len(tree.xpath("//section[@id='ranking']//li")) > 1
    assert tree.xpath("//section[@id='explanation-1']//figure")
    assert "SIMULATED" in tree.findtext(".//title")


@pytest.mark.parametrize(
    "page",
    [
        to_html(report(measurements={"p2p": copies(winner().gpus)})),
        to_html(report()),
        bandwidth_page(bandwidth(winner(), ranking=UNSET)),
    ],
    ids=["an older report", "nothing measured", "nothing weighed"],
)
def test_no_section_if_nothing_was_weighed(page):
    assert 'id="ranking"' not in page
    assert "explanation-1" not in page


def test_a_ranking_is_small_in_a_report():
    """Of 8 GPUs: two explanations with 84 predictions each."""
    assert len(msgspec.json.encode(ranking_record(winner()))) < 16_000
    assert ranking_record(diagnosis(winner()).judgement()) is not None
    assert b"ranking" not in msgspec.json.encode(bandwidth(winner(), ranking=UNSET))


def test_one_explanation_has_nothing_that_it_was_told_from():
    alone = msgspec.structs.replace(winner(), ranking=winner().ranking[:1])

    assert "What decided" not in bandwidth_page(bandwidth(alone))


def test_readings_that_differ_by_the_device_are_one_line():
    lines = tuple(f"uplink {bus_id(n)}: read idle" for n in range(5))
    one = explained((), 0.9, "no fault", 4, narrow(1), narrow(1), readings=(*lines, "5 readings as expected"))

    assert readings(one) == [f"uplink {bus_id(0)} and 4 more: read idle", "5 readings as expected"]


class Lines(NamedTuple):
    """A part of an input."""

    kind: str
    source: str
    first_line: int
    last_line: int
    why: str = ""


class Read(NamedTuple):
    """A diagnosis that lists what was read."""

    read: tuple[Lines, ...]
    unread: tuple[Lines, ...] = ()


def test_markdown_lists_what_was_read():
    told = Read(
        (Lines("kernel-log", "a.txt", 1, 9), Lines("kernel-log", "a.txt", 12, 12)),
        (Lines("", "a.txt", 10, 11, "cut off"),),
    )
    text = "\n".join(diagnosis_markdown._read(told, Markdown()))

    assert "| kernel-log | 1-9, 12 | a.txt |" in text
    assert "| not understood: cut off | 10-11 | a.txt |" in text


def test_markdown_of_a_diagnosis_is_redacted_and_names_the_confirming_command():
    told = msgspec.structs.replace(
        diagnosis(winner()),
        source=("/home/alice/topo.txt",),
        findings=(finding(why="alice on trainbox17.example.edu, 10.20.30.40"),),
    )
    text = to_markdown(told, change=of_diagnosis(told))

    assert [word for word in ("alice", "trainbox17", "example.edu", "10.20.30.40") if word in text] == []
    assert "- confirm: `lspci -vv -s 0000:13:00.0`" in text
    assert "alice" in to_markdown(told)
