"""The page as text: nothing from outside, nothing of a host's that could run, and it grows by little."""

import re

import msgspec
from lxml import html
from msgspec.structs import replace

from tests.render.reports import copies, finding, healthy, passed, report, sick
from tests.render.views import report_page
from tests.topology.servers import topology


def body(page):
    return re.sub(r"\s+", " ", html.fromstring(page).find("body").text_content())


def test_a_report_about_nothing_is_a_page_that_says_so():
    page = body(report_page(report(simulated=False)))

    assert "Nothing was evaluated." in page
    assert "Topology" not in page


def test_a_rack_of_evidence_is_cut_and_the_rest_is_named():
    many = finding(evidence=tuple(f"line {n}" for n in range(100)))

    assert "and 60 lines more: gpucheck verify --format json" in body(report_page(report(many)))


def test_the_title_tells_verdict_host_and_simulation():
    titles = [html.fromstring(report_page(made)).findtext(".//title") for made in (sick(), healthy())]

    assert titles == ["FAIL: node07 (SIMULATED)", "PASS: node07"]


def test_training_and_measurement_are_told():
    page = body(report_page(sick()))

    for words in ("torch ddp", "2.3 to 0.412", "1810", "93 %", "0 wrong words", "18 NVLinks"):
        assert words in page


def test_a_failed_training_has_no_row():
    """Its finding tells it."""
    made = report(passed(), measurements={"smoke-ddp": {"type": "failure", "kind": "hang"}})

    assert "Training runs" not in report_page(made)


def test_a_matrix_that_was_hardly_measured_is_no_heat_map():
    made = sick()
    copied = dict(made.measurements["p2p"])
    copied["matrices"] = {"staged_uni_gb_s": [[None] * 8 for _ in range(8)]}
    changed = msgspec.structs.replace(made, measurements={"p2p": copied})

    assert 'role="tab"' not in report_page(changed)


def test_what_was_not_proven_stands_on_top():
    made = msgspec.structs.replace(healthy(), not_proven=("training, <b>torch</b> is not installed", "p2p, one GPU"))

    (note,) = html.fromstring(report_page(made)).xpath("//*[@id='not-proven']")

    words = "Not proven by this run: training, <b>torch</b> is not installed; p2p, one GPU."
    assert note.text_content() == words
    assert "not-proven" not in report_page(healthy())


def test_passed_checks_of_all_gpus_are_one_row():
    """A rack has a thousand of them, and paper shows all evidence."""
    machine = topology(72, 4)
    bus_ids = [gpu.pci_bus_id for gpu in machine.gpus]
    passes = [replace(passed("bar1", f"gpu:{bus_id}"), seen="131,072 MiB", evidence=(bus_id,)) for bus_id in bus_ids]
    page = body(report_page(report(*passes, topology=machine)))

    assert "all 72 GPUs" in page
    assert page.count("131,072 MiB") == 1


def test_like_gpus_of_a_rack_share_a_row_of_paths_and_links():
    page = body(report_page(report(passed(), topology=topology(72, 4, switch_links=18))))

    assert page.count("NV18") < 10
    assert "GPU0-71" in page
    assert "GPUs with equal paths share a row" in page
    assert "share a row" not in body(report_page(sick()))


def test_each_step_of_a_fix_is_a_line_and_a_command_can_be_copied():
    page = report_page(report(finding()))

    assert '<div>reseat the board, then:</div><div><span class="command"><code>gpucheck verify --only nvlink' in page


def test_equal_peer_access_is_one_sentence():
    access = {"cuda": [[None, True], [True, None]], "nvml": [["X", "OK"], ["OK", "X"]]}
    copied = {**copies(["0000:10:00.0", "0000:20:00.0"]), "peer_access": access}
    page = body(report_page(report(passed(), measurements={"p2p": copied})))
    access["cuda"][1][0] = False
    other = body(report_page(report(passed(), measurements={"p2p": {**copied, "peer_access": access}})))

    assert "yes OK, for all 2 ordered pairs" in page
    assert "for all" not in other
    assert "no OK" in other
