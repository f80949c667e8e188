"""A pasted matrix can be drawn: what its classes say, and no more."""

import pytest

from gpucheck import imports
from gpucheck.topology import infer_wiring
from tests.imports import nccl
from tests.imports.corpus import CASES, by_id, raw

READABLE = [case for case in CASES if not case.get("negative")]


def sketch(text):
    return infer_wiring(imports.read(text)).wiring or pytest.fail("no wiring")


def test_pix_makes_a_switch_and_affinity_a_node():
    wiring = sketch(by_id("topo-h100x8-pix-sys-10nic"))
    switches = [f.bus_id for f in wiring.functions if f.kind == "switch-upstream"]

    assert (len(switches), [node.index for node in wiring.nodes][:2]) == (8, [0, 1])
    assert {f.above for f in wiring.functions if f.label in ("GPU0", "NIC0")} == {"switch0"}
    assert not wiring.told


def test_many_gpus_joined_alike_are_joined_by_switches_and_few_by_cables():
    assert {b.b for b in sketch(by_id("topo-a100x8-compact-spaces")).nvlinks} == {"nvswitch"}
    assert {(b.a, b.b) for b in sketch(by_id("topo-3090x2-nv4-am4")).nvlinks} == {("GPU0", "GPU1")}


@pytest.mark.parametrize("case", READABLE, ids=[case["id"] for case in READABLE])
def test_every_real_paste_can_be_sketched(case):
    topology = imports.read(raw(case))
    wiring = sketch(raw(case))

    assert [f.label for f in wiring.functions if f.kind == "gpu"] == [f"GPU{gpu.index}" for gpu in topology.gpus]
    assert [f.label for f in wiring.functions if f.kind == "nic"] == [nic.label for nic in topology.nics]
    assert all(f.link.max_width is None for f in wiring.functions), "a matrix names no links"


def test_a_wiring_that_was_told_is_kept():
    topology = imports.read(nccl.hgx())

    assert infer_wiring(topology) is topology
