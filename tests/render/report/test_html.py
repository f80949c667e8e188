"""The page as text: nothing from outside, nothing of a host's that could run, and it grows by little."""

import re
from html import unescape

import msgspec
import pytest
from lxml import html

from gpucheck.model import Verdict
from gpucheck.render.report.html import to_html
from tests.render.reports import finding, healthy, hostile, passed, report, sick


def body(page):
    return re.sub(r"\s+", " ", html.fromstring(page).find("body").text_content())


@pytest.mark.parametrize("made", [sick(), healthy(), hostile()], ids=["sick", "healthy", "hostile"])
def test_the_page_needs_nothing_from_outside(made):
    page = to_html(made)
    tree = html.fromstring(page)

    assert "default-src 'none'" in unescape(page)
    assert "unsafe-inline" not in page
    assert not tree.xpath("//*[@src or @style or @*[starts-with(name(), 'on')]]")
    assert all(link.get("href").startswith("#finding-") for link in tree.xpath("//*[@href]"))
    assert not re.search(r"url\(|@import", "".join(tree.xpath("//style/text()")))


def test_no_host_string_is_markup():
    page = to_html(hostile())
    tree = html.fromstring(page)

    assert not tree.xpath("//img")
    assert len(tree.xpath("//script")) == 2
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_a_report_about_nothing_is_a_page_that_says_so():
    page = body(to_html(report(simulated=False)))

    assert "Nothing was evaluated." in page
    assert "Topology" not in page


def test_findings_that_say_the_same_are_one_block():
    machine = sick(72).topology
    page = html.fromstring(
        to_html(report(*(finding(subject=f"gpu:{gpu.pci_bus_id}") for gpu in machine.gpus), topology=machine))
    )

    (article,) = page.xpath("//article")
    assert "all 72 GPUs" in article.text_content()


def test_a_rack_of_evidence_is_cut_and_the_rest_is_named():
    many = finding(evidence=tuple(f"line {n}" for n in range(100)))

    assert "and 60 lines more: gpucheck verify --format json" in body(to_html(report(many)))


def test_the_title_tells_verdict_host_and_simulation():
    titles = [html.fromstring(to_html(made)).findtext(".//title") for made in (sick(), healthy())]

    assert titles == ["FAIL: node07 (SIMULATED)", "PASS: node07"]


def test_where_a_recording_comes_from_is_a_note():
    assert "recorded on Monday by gpucheck 0.1.0" in body(
        to_html(report(), mark="recorded on Monday by gpucheck 0.1.0")
    )


def test_training_and_measurement_are_told():
    page = body(to_html(sick()))

    for words in ("torch ddp", "2.303 to 0.412", "1810", "93 %", "0 wrong words", "18 NVLinks"):
        assert words in page


def test_a_failed_training_has_no_row():
    """Its finding tells it."""
    made = report(passed(), measurements={"smoke-ddp": {"type": "failure", "kind": "hang"}})

    assert "Training runs" not in to_html(made)


def test_a_matrix_that_was_hardly_measured_is_no_heat_map():
    made = sick()
    copied = dict(made.measurements["p2p"])
    copied["matrices"] = {"staged_uni_gb_s": [[None] * 8 for _ in range(8)]}
    changed = msgspec.structs.replace(made, measurements={"p2p": copied})

    assert 'role="tab"' not in to_html(changed)


def test_a_skip_needs_no_remedy():
    assert "does not apply here" in body(to_html(report(finding(verdict=Verdict.SKIP, fix=""))))


def test_what_was_not_proven_stands_on_top():
    made = msgspec.structs.replace(healthy(), not_proven=("training, <b>torch</b> is not installed", "p2p, one GPU"))

    (note,) = html.fromstring(to_html(made)).xpath("//*[@id='not-proven']")

    words = "Not proven by this run: training, <b>torch</b> is not installed; p2p, one GPU."
    assert note.text_content() == words
    assert "not-proven" not in to_html(healthy())
