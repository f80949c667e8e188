"""The page as text: nothing from outside, nothing of a host's that could run, and it grows by little."""

import re

import msgspec
import pytest
from lxml import html
from msgspec.structs import replace

from gpucheck.model import Verdict
from gpucheck.model.collectives import CollectiveResult
from gpucheck.model.compute import ComputeDevice, MatrixRate, MemoryRates, Sample
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


BUS = "0000:10:00.0"
RATES = {
    "fp32": MatrixRate(tflops=59.9, of_ceiling=0.9, samples=9),
    "int8": MatrixRate(tflops=1242.0, of_ceiling=0.6, samples=9),
}


def gpu(index, degrees=65.0, seconds=30.0):
    samples = tuple(
        Sample(at=seconds * n / 10, sm_clock_mhz=1980.0, power_w=700.0, temperature_c=degrees) for n in range(11)
    )
    return ComputeDevice(index=index, name="H100", traces=samples)


def computed(*findings):
    memory = MemoryRates(read_gb_s=3009.0, ceiling_gb_s=3350.0)
    device: ComputeDevice = msgspec.structs.replace(gpu(0), bus_id=BUS, gemm=RATES, memory=memory)
    made = report(passed(), *findings, measurements={"compute": msgspec.to_builtins({"gpus": [device]})})
    page = report_page(made)
    return page[page.index('id="compute"') :]


def test_rates_have_units_and_the_row_has_the_verdict_of_its_findings():
    page = computed(finding("compute-clocks", f"gpu:{BUS}", Verdict.WARN, gpu_index=0))
    plain = re.sub(r"<[^>]+>", " ", page)

    assert re.search(r"fp32\s+TFLOPS\s+int8\s+TOPS\s+memory read\s+GB/s", plain)
    assert re.search(r"59\.9\s+90%\s+1242\s+60%\s+3009\s+90%", plain)
    assert 'href="#finding-compute-clocks-gpu0"' in page
    assert "WARN" not in computed()


def test_clock_power_and_temperature_under_load_are_bars():
    page = computed()
    plain = re.sub(r"<[^>]+>", " ", page)

    assert re.search("1980 to 1980 +\u2588+ +700 to 700 +\u2588+ +65 to 65 +\u2588+", plain)
    assert "<style" not in page
    assert " style=" not in page


@pytest.mark.parametrize(("expected", "head"), [(None, ""), (310.0, "expected")])
def test_collectives_have_sizes_units_and_what_was_expected(expected, head):
    result = CollectiveResult(
        operation="all_reduce", size_bytes=1 << 20, variant="as is", time_us=345.9, busbw_gb_s=297.25, checked=7,
        expected_busbw_gb_s=expected, wrong=3,
    )  # fmt: skip
    ran = {"kind": "8 GPUs, NCCL", "results": msgspec.to_builtins([result]), "transports": {"P2P": 16}}
    page = report_page(report(passed(), measurements={"collectives": ran}))
    section = re.sub(r"<[^>]+>", " ", page[page.index('id="collectives"') : page.index('id="host"')])

    assert re.search(r"all_reduce\s+1 MiB\s+as is\s+345\.90\s+\u2013\s+\u2013\s+297\.25", section)
    assert re.search(r"\u00d7\s+3", section)
    assert "P2P on 16 channels" in section
    assert ("expected" in section) == bool(head)


@pytest.mark.parametrize("kept", [{}, {"results": []}, {"results": "x"}])
def test_a_step_without_results_has_no_section(kept):
    assert 'id="collectives"' not in report_page(report(passed(), measurements={"collectives": kept}))
