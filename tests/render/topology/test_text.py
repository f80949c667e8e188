"""What is shown can be read back, is never cut, and says SIMULATED where it is."""

import click
import msgspec
import pytest
from hypothesis import given, settings

from gpucheck import imports
from gpucheck.model import Topology
from gpucheck.topology import build
from tests.imports.corpus import CASES, raw
from tests.machines import h100, on_bus, p100, reading
from tests.render.reports import finding
from tests.render.views import topology_text
from tests.topology.strategies import pasted

P100S = build(reading(p100(0), p100(1)), on_bus(p100(0), p100(1)), simulated=True)
H100S = build(reading(*map(h100, range(4))), on_bus(*map(h100, range(4))), simulated=False)
READABLE = [case for case in CASES if not case.get("negative")]


def plain(topology: Topology, about: str = "") -> str:
    return click.unstyle(topology_text(topology, about=about))


@settings(max_examples=100)
@given(pasted())
def test_import_of_render_is_the_identity(topology):
    """Matrix, NICs and affinities of any machine survive being shown and read back."""
    back = imports.read(plain(topology))

    assert (back.matrix, back.pairs, back.gpus, back.nics) == (
        topology.matrix,
        topology.pairs,
        topology.gpus,
        topology.nics,
    )


@pytest.mark.parametrize("case", READABLE, ids=[case["id"] for case in READABLE])
def test_every_real_paste_survives_being_shown(case):
    """Those with gaps too: a gap is shown as ? and read back as a gap."""
    topology = imports.read(raw(case))
    back = imports.read(plain(topology))

    assert (back.matrix, back.gpus, back.nics) == (topology.matrix, topology.gpus, topology.nics)


def test_what_is_shown_in_colour_can_be_read_back_too():
    assert imports.read(topology_text(H100S)).matrix == H100S.matrix


def test_simulated_is_the_first_thing_said():
    assert plain(P100S, about="p100-pcie-x2").startswith("SIMULATED p100-pcie-x2")
    assert "SIMULATED" not in plain(H100S)


def test_pairs_that_expect_the_same_are_one_line():
    text = plain(H100S)

    assert text.count("18 NVLinks of generation 4") == 1
    assert "NV18  382.5 GB/s (low 348.94, line rate 450)" in text
    assert "6 pairs: 0-1, 0-2, 0-3, 1-2, 1-3, 2-3" in text


def test_a_finding_says_what_why_and_what_to_do():
    disagreeing = build(reading(p100(0), p100(1), ancestor="SYS"), on_bus(p100(0), p100(1)), simulated=False)
    text = plain(disagreeing)

    assert "NVML reports SYS, the bridge chain in sysfs is PIX" in text
    assert "\n        why       " in text
    assert "\n        fix       " in text


def test_a_faulty_gpu_is_marked_and_the_text_is_still_read():
    bad = finding(subject=f"gpu:{H100S.gpus[2].pci_bus_id}")
    lost = finding("inventory", "gpu:0000:ff:00.0", cause="gpu-lost", gpu_index=9)
    text = plain(msgspec.structs.replace(H100S, findings=(bad, lost)))
    marked = [line for line in text.splitlines() if line.startswith("GPU") and "FAIL" in line]

    assert [line.split("  ")[-1].strip() for line in marked] == ["FAIL nvlink-down", "FAIL gpu-lost"]
    assert [gpu.uuid for gpu in imports.read(text).gpus] == [gpu.uuid for gpu in H100S.gpus]
    assert imports.read(text).matrix == H100S.matrix
