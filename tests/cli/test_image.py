"""``gpucheck image``: what it prints, what it exits with, and what it says to a wrong word."""

import json

import pytest
from msgspec.structs import replace

from gpucheck.images import build as building
from gpucheck.images import probe
from gpucheck.lab import system
from gpucheck.lab.system import LabError
from gpucheck.model import Limits, Simulation
from tests.images.inside import CPU_IMAGE, ON_A_LAPTOP, ON_P100, on

SIMULATED = on(ON_P100, simulation=Simulation(profile="p100-pcie-x2"))


@pytest.fixture
def image(monkeypatch, run):
    """Run the command where the given values are what there is to read."""

    def go(*arguments, values=ON_P100):
        monkeypatch.setattr(probe, "read", lambda _host, **options: setattr(go, "options", options) or values)
        return run("image", *arguments)

    return go


@pytest.mark.parametrize(
    ("values", "status"),
    [
        (ON_P100, 0),
        (CPU_IMAGE, 0),
        (ON_A_LAPTOP, 3),
        (replace(ON_P100, wheels=()), 2),
        (on(ON_P100, limits=Limits(shm_bytes=1)), 1),
    ],
)
def test_the_exit_status_is_the_verdict(image, values, status):
    assert image(values=values)[0] == status


def test_simulated_hardware_is_marked_in_every_format(image):
    for form in ("text", "markdown", "html"):
        assert "SIMULATED" in image("--format", form, values=SIMULATED)[1]
    assert json.loads(image("--format", "json", values=SIMULATED)[1])["simulated"] is True


def test_the_json_holds_numbers_and_findings(image):
    report = json.loads(image("--format", "json")[1])

    assert report["schema"] == "gpucheck.image/1"
    assert report["purpose"].startswith("for Pascal, Volta, Turing with driver 525.60.13")
    assert (report["gpus"], report["shm_bytes"], report["verdict"]) == (2, 8 * 2**30, "pass")
    assert report["libraries"] == {"cuda": "12.6", "cudnn": "9.10.2", "nccl": "2.29.3"}
    assert report["counts"]["pass"] == len(report["findings"])
    assert json.loads(image("--format", "json", values=replace(ON_P100, manifest=None))[1])["purpose"] is None


def test_a_simulated_host_is_judged_through_the_real_reading(run):
    """Outside an image there is no promise: GPUs and shared memory are what is left to judge."""
    status, out, _ = run("image", "--simulate", "p100-pcie-x2", "--format", "json")
    report = json.loads(out)

    assert report["simulated"] is True
    assert report["gpus"] == 2
    assert report["image"] is None
    assert status in (0, 1)


@pytest.mark.parametrize(
    ("arguments", "quick", "full"),
    [
        ((), False, False),
        (("--level", "quick"), True, False),
        (("--level", "full"), False, True),
    ],
)
def test_level_says_what_is_read(image, arguments, quick, full):
    image(*arguments)

    assert image.options == {"quick": quick, "full": full}


def test_list_is_the_table(image):
    status, out, _ = image("list")

    assert status == 0
    assert "torch-cu126" in out
    assert "Pascal" in out
    assert json.loads(image("list", "--format", "json")[1])["schema"] == "gpucheck.images/1"


def test_without_an_engine_build_says_what_to_do(image, monkeypatch):
    def none():
        raise LabError("the Docker engine does not answer\ndo: start it")

    monkeypatch.setattr(system, "engine", none)

    status, _, err = image("build", "torch-cpu")

    assert status == 3
    assert "do: start it" in err


def test_build_prints_tag_size_and_sbom(image, monkeypatch, tmp_path):
    made = building.Built("gpucheck/torch:1", 1_500_000_000, built=True, sbom=tmp_path / "torch.cdx.json")
    monkeypatch.setattr(system, "engine", lambda: None)
    monkeypatch.setattr(building, "build", lambda *_: made)

    status, out, _ = image("build", "torch-cpu")

    assert status == 0
    assert out.startswith("gpucheck/torch:1  1500 MB  built")
