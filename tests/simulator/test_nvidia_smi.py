"""The simulated nvidia-smi prints what the real one prints: gpucheck's own readers of pasted output read it."""

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from itertools import product

import pytest

from gpucheck.simulator.nvidia_smi import rows
from tests import forked
from tests.shared import sampled

pytestmark = pytest.mark.slow

RUN = "import sys; from gpucheck.simulator.nvidia_smi import main; sys.exit(main('nvidia-smi', sys.argv[1:]))"


@pytest.fixture
def smi(monkeypatch, cache):
    """Run nvidia-smi on a machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))

    def run(*arguments, machine="hgx-h100-x8", faults=()):
        chosen = [word for fault in faults for word in ("--fault", fault)]
        return forked.gpucheck("simulate", machine, *chosen, "--", sys.executable, "-c", RUN, *arguments)

    return run


def causes(text):
    """What gpucheck finds in the text."""
    report = json.loads(forked.gpucheck("diagnose", "-", "--format", "json", given=text.encode()).stdout)
    return {finding["cause"] for finding in report["findings"] if finding["verdict"] in ("warn", "fail")}


def test_names_and_elements_are_unique():
    names = Counter(name for row in rows() for name in row.names)
    elements = Counter(row.element for row in rows() if row.label)
    labels = Counter(row.label for row in rows() if row.label)

    assert {one for counted in (names, elements, labels) for one, count in counted.items() if count > 1} == set()


PAGES: tuple[list[str], ...] = (["-q"], ["-q", "-x"], [], ["nvlink", "-s"], ["nvlink", "-e"], ["topo", "-m"])
HEALTHY = ("t4-vm-x1", "hgx-h100-x8", "rtx4090-x2", "p100-pcie-x2", "a100-mig-x8", "gb200-x4")


@pytest.mark.parametrize(
    ("machine", "arguments"), sampled(product(HEALTHY, PAGES), lambda number, _: number == 11 or number % 7 == 0)
)
def test_output_of_a_healthy_machine_names_no_cause(smi, machine, arguments):
    done = smi(*arguments, machine=machine)

    assert done.returncode == 0
    assert "SIMULATED" in done.stdout + done.stderr.replace("SIMULATED hardware", "")
    assert causes(done.stdout) <= {"mig-enabled", "geforce-p2p-disabled"}


@pytest.mark.parametrize(
    ("fault", "arguments", "cause", "status"),
    [
        ("nvlink-down:gpu=2,link=3", ["nvlink", "-s"], "nvlink-down", 0),
        ("ecc-uncorrected:gpu=3", ["-q"], "ecc-uncorrected", 0),
        ("ecc-uncorrected:gpu=3", ["-q", "-x"], "ecc-uncorrected", 0),
        ("ecc-uncorrected:gpu=3", [], "ecc-uncorrected", 0),
        ("row-remap-failed:gpu=4", ["-q"], "row-remap", 0),
        ("row-remap-pending:gpu=4", ["-q", "-x"], "row-remap", 0),
        ("throttle-thermal:gpu=5", ["-q"], "throttled", 0),
        ("pcie-width:gpu=1,width=8", ["-q"], "pcie-width-reduced", 0),
        ("gpu-lost:gpu=6", ["-q"], "gpu-lost", 15),
        ("driver-not-loaded", [], "driver-not-loaded", 9),
        ("driver-mismatch", ["-L"], "driver-mismatch", 18),
    ],
)
def test_a_fault_is_printed_as_the_driver_prints_it(smi, fault, arguments, cause, status):
    done = smi(*arguments, faults=[fault])

    assert done.returncode == status
    assert causes(done.stdout) == {cause}


def test_csv_has_the_values_that_were_asked_for(smi):
    query = "--query-gpu=index,memory.total,fan.speed,pcie.link.width.current"

    assert smi(query, "--format=csv", "-i", "1").stdout.splitlines() == [
        "index, memory.total [MiB], fan.speed [%], pcie.link.width.current",
        "1, 81559 MiB, [N/A], 16",
    ]
    assert smi(query, "--format=csv,noheader,nounits", "-i", "1").stdout == "1, 81559, [N/A], 16\n"


def test_a_name_that_does_not_exist_is_an_error(smi):
    done = smi("--query-gpu=index,beauty", "--format=csv")

    assert (done.returncode, done.stdout) == (2, 'Field "beauty" is not a valid field to query.\n')


@pytest.mark.parametrize("arguments", [["-pm", "1"], ["--gpu-reset"], ["-pl", "300"], ["dmon"], ["topo", "-p2p", "r"]])
def test_what_changes_a_gpu_or_is_not_known_is_rejected(smi, arguments):
    done = smi(*arguments)

    assert done.returncode == 2
    assert "not simulated" in done.stdout


def test_xml_is_well_formed_and_marked(smi):
    text = smi("-q", "-x", machine="rtx4090-x2").stdout
    tree = ElementTree.fromstring(text)  # noqa: S314 - our own text

    assert [gpu.findtext("product_name") for gpu in tree.iter("gpu")] == ["NVIDIA GeForce RTX 4090"] * 2
    assert "<!-- SIMULATED by gpucheck: rtx4090-x2 -->" in text


def test_list_names_mig_devices(smi):
    lines = smi("-L", machine="a100-mig-x8").stdout.splitlines()

    assert lines[0].startswith("GPU 0: NVIDIA A100")
    assert lines[1].startswith("  MIG ")
    assert "(UUID: MIG-" in lines[1]


def test_no_gpu_is_reported_as_nvidia_smi_does(smi):
    done = smi("-L", machine="t4-vm-x1", faults=["gpu-missing:gpu=0"])

    assert (done.returncode, done.stdout) == (6, "No devices were found\n")
