"""Rates, traces and collectives on the page of a host."""

import re

import msgspec
import pytest

from gpucheck.model import Verdict
from gpucheck.model.collectives import CollectiveResult
from gpucheck.model.compute import ComputeDevice, MatrixRate, MemoryRates, Sample
from tests.render.reports import finding, passed, report
from tests.render.views import report_page

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
