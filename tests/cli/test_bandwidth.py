"""``gpucheck bandwidth``: the contract, exit statuses, what is refused, and that nothing simulated looks real."""

import json

import click
import pytest

from gpucheck.cli._shared.common import Problem
from gpucheck.cli.bandwidth import parse_sizes, parse_tensor
from tests.forked import gpucheck

pytestmark = pytest.mark.slow


def measured(*arguments):
    return gpucheck("bandwidth", *arguments)


def test_the_json_is_the_contract():
    done = measured("--simulate", "p100-pcie-x2", "--sizes", "64K,1M,64M", "--format", "json")
    report = json.loads(done.stdout)

    assert done.returncode == 0, done.stderr
    assert (report["schema"], report["verdict"], report["engine"]) == ("gpucheck.bandwidth/1", "pass", "driver")
    assert report["simulated"] is True
    assert report["simulation"]["profile"] == "p100-pcie-x2"
    ((_, there), (back, _)) = report["matrices"]["p2p_uni_gb_s"]
    assert (there, back) == pytest.approx((13.39, 13.39), rel=0.005)
    assert set(report["matrices"]) >= {"p2p_bidir_gb_s", "p2p_latency_us", "staged_uni_gb_s"}
    pair = report["pairs"][0]
    assert (pair["class"], pair["expected_gb_s"]) == ("PIX", 13.39)
    assert pair["ratio"] == pytest.approx(1, rel=0.005)
    assert 0 < pair["measured"]["mad_percent"] < 0.5
    assert pair["basis"].startswith("PCIe Gen3 x16")
    assert report["integrity"]["bytes_verified"] > 0
    assert report["device_s"] <= report["planned_s"] * 1.5
    assert [point["size_bytes"] for point in report["sizes"]] == [65536, 1 << 20, 64 << 20]


def test_the_text_is_marked_simulated_first_and_last_and_shows_measured_beside_expected():
    done = measured("--simulate", "p100-pcie-x2", "--sizes", "64K,64M", "--level", "quick")
    lines = click.unstyle(done.stdout).splitlines()

    assert "SIMULATED" in lines[0]
    assert "SIMULATED" in lines[-1]
    assert any(line.startswith("PIX") and "13.4 (12.2 to 15.8)" in line and "100%" in line for line in lines)
    assert any(line.startswith("64 KiB") for line in lines)


@pytest.mark.parametrize(("devices", "status"), [((), 2), (("--devices", "0"), 0)])
def test_copies_without_one_of_the_gpus_of_the_host_are_no_pass(devices, status):
    """Those that were asked for may pass."""
    done = measured("--simulate", "p100-pcie-x2", "--fault", "gpu-lost:gpu=1", "--level", "quick", *devices)

    assert (done.returncode, "gpu-lost (certain)" in done.stdout) == (status, status == 2)


def test_what_is_wrong_stands_before_the_matrices_and_its_cells_are_marked():
    faulty = ("--simulate", "dgx1-p100", "--fault", "p2p-slow:pair=0-1", "--level", "quick")
    text = measured(*faulty).stdout
    first_matrix = text.index("unidirectional, GB/s")

    assert text.index("WARN    p2p-bandwidth  GPU 0 (0000:06:00.0) - GPU 1 (0000:07:00.0): ") < first_matrix
    assert first_matrix < text.index("PASS    p2p-integrity")
    assert text.count("!10.9") == 2
    assert "\n! the pair has a warning\n" in text


def test_one_gpu_measures_inside_itself_and_says_so():
    done = measured("--simulate", "p100-pcie-x2", "--devices", "0,0")

    assert done.returncode == 0
    assert "device-local, not between GPUs" in done.stdout


def test_the_guides_one_liner_is_timed_and_verified():
    done = measured("--simulate", "p100-pcie-x2", "--tensor", "10000x10000", "--format", "json")
    report = json.loads(done.stdout)

    wanted = {
        "bytes": 400_000_000,
        "0 to 1, GB/s": 13.39,
        "0 to 1, ms": 29.89,
        "1 to 0, GB/s": 13.39,
        "1 to 0, ms": 29.89,
    }
    assert report["tensor"] == pytest.approx(wanted, rel=0.005)
    assert report["integrity"]["bytes_verified"] == 800_000_000


def test_cpu_numbers_are_never_judged_as_gpu_numbers():
    done = measured("--devices", "cpu,cpu", "--level", "quick", "--format", "json")
    report = json.loads(done.stdout)

    assert done.returncode == 0
    assert report["simulated"] is False
    assert "no GPU was measured" in report["kind"]
    verdicts = {finding["check"]: finding["verdict"] for finding in report["findings"]}
    assert verdicts == {"p2p-bandwidth": "skip", "p2p-integrity": "pass"}


def test_sizes_and_shapes_are_read_as_people_write_them():
    assert parse_sizes("1M, 4KiB,4k,8") == (8, 4096, 1 << 20)
    assert parse_sizes("all")[-1] == 256 << 20
    assert parse_tensor("10000x10000") == 400_000_000
    with pytest.raises(Problem):
        parse_tensor("0x5")
