"""The links between two GPUs: the narrowest sets the expectation, a reduced one is named once."""

import re
import shlex
from pathlib import Path

import click
import msgspec
import pytest
from hypothesis import given

from gpucheck import imports
from gpucheck.cli import main
from gpucheck.knowledge import healthy_rates
from gpucheck.model import NvLink, PcieLink
from gpucheck.render.subjects.topology import MEANING
from gpucheck.topology import build, infer_wiring
from gpucheck.topology.wiring import Paths, wire
from tests.imports import nccl
from tests.imports.corpus import CASES, by_id, raw
from tests.machines import GEN5_X16, on_bus, p100, reading
from tests.topology.servers import ZEN4, narrowed, server, topology
from tests.topology.strategies import machines

NARROW = PcieLink(generation=5, width=8, max_generation=5, max_width=8)
LOST_LANES = narrowed(GEN5_X16, width=4)
LOST_SPEED = narrowed(GEN5_X16, generation=2)


def pair(made, a, b):
    return next(pair for pair in made.pairs if (pair.a, pair.b) == (a, b))


def test_only_links_on_the_way_count():
    """Two GPUs below one switch do not use its uplink."""
    made = topology(uplink={1: NARROW})

    assert pair(made, 4, 5).expected == pair(made, 0, 1).expected
    assert pair(made, 4, 5).narrowest is None
    assert pair(made, 0, 4).narrowest in ("0000:21:00.0", "0000:01:01.0")
    assert pair(made, 0, 4).expected.high_gb_s == 31.5


@pytest.mark.parametrize("link", [LOST_LANES, LOST_SPEED])
def test_a_reduced_uplink_is_named_once_at_the_switch(link):
    """Its root port shows the same link and is not named a second time."""
    made = topology(uplink={1: link})

    assert pair(made, 0, 4).reduced == ("0000:21:00.0",)
    assert pair(made, 4, 5).reduced == ()


def test_a_gpu_that_lost_lanes_is_reduced_and_one_that_sleeps_is_not():
    nvml, pci = server(2, 2)
    slow, asleep = (
        msgspec.structs.replace(gpu, pcie=narrowed(GEN5_X16, **now))
        for gpu, now in zip(nvml.gpus, ({"width": 8}, {"generation": 1}), strict=True)
    )
    made = build(msgspec.structs.replace(nvml, gpus=(slow, asleep)), pci, False, cpu=ZEN4)

    assert made.pairs[0].reduced == (slow.pci_bus_id,)


def test_a_bridge_that_nobody_could_read_is_drawn_and_not_guessed():
    """Its place in the chain tells what it is, nothing tells its link."""
    gpus = p100(0), p100(1)
    wiring = wire(gpus, (), {d.bus_id: d for d in on_bus(*gpus)}, None)
    kinds = {function.bus_id: function.kind for function in wiring.functions}

    assert kinds["0000:00:01.0"] == "root-port"
    assert kinds["0000:01:00.0"] == "switch-upstream"
    assert kinds["0000:02:00.0"] == "switch-downstream"
    assert [hop.bus_id for hop in Paths(wiring).between("GPU0", "GPU1")] == ["0000:03:00.0", "0000:04:00.0"]


def test_bundles_name_both_ends_of_direct_links_and_the_switch_of_others():
    a, b = p100(0), p100(1)
    cable = NvLink(link=0, active=True, remote_kind="gpu", remote_bus_id=b.pci_bus_id)
    back = msgspec.structs.replace(cable, remote_bus_id=a.pci_bus_id.upper())
    hidden = NvLink(link=1, active=True, remote_kind="switch")
    down = NvLink(link=2, active=False, remote_kind="gpu", remote_bus_id=b.pci_bus_id)
    gpus = (msgspec.structs.replace(a, nvlinks=(cable, hidden, down)), msgspec.structs.replace(b, nvlinks=(back,)))
    made = build(reading(*gpus), on_bus(*gpus), False)
    assert made.wiring is not None

    assert {(x.a, x.b, x.links) for x in made.wiring.nvlinks} == {("GPU0", "GPU1", 1), ("GPU0", "nvswitch", 1)}


@given(machines())
def test_every_function_of_any_machine_hangs_below_one_that_stands_before_it(machine):
    nvml, pci = machine
    wiring = build(nvml, pci, False).wiring or pytest.fail("no wiring")
    seen: set[str] = set()
    for f in wiring.functions:
        assert f.above is None or f.above in seen
        seen.add(f.bus_id)
    assert sum(f.kind == "gpu" for f in wiring.functions) == len(nvml.gpus)


READABLE = [case for case in CASES if not case.get("negative")]


def sketch(text):
    return infer_wiring(imports.read(text)).wiring or pytest.fail("no wiring")


def test_pix_makes_a_switch_and_affinity_a_node():
    wiring = sketch(by_id("topo-h100x8-pix-sys-10nic"))
    switches = [f.bus_id for f in wiring.functions if f.kind == "switch-upstream"]

    assert (len(switches), [node.index for node in wiring.nodes][:2]) == (8, [0, 1])
    assert {f.above for f in wiring.functions if f.label in ("GPU0", "NIC0")} == {"switch0"}
    assert not wiring.told


@pytest.mark.parametrize("case", READABLE, ids=[case["id"] for case in READABLE])
def test_every_real_paste_can_be_sketched(case):
    topology = imports.read(raw(case))
    wiring = sketch(raw(case))

    assert [f.label for f in wiring.functions if f.kind == "gpu"] == [f"GPU{gpu.index}" for gpu in topology.gpus]
    assert [f.label for f in wiring.functions if f.kind == "nic"] == [nic.label for nic in topology.nics]
    assert all(f.link.max_width is None for f in wiring.functions), "a matrix names no links"


PAGE = (Path(__file__).parents[2] / "docs/topology.md").read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ROWS = dict(re.findall(r"^\| `([^`]+)` \| [^|]* \| ([^|]*) \|$", PAGE, re.MULTILINE))


@pytest.mark.parametrize("line", BLOCK.splitlines())
def test_every_command_works(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("topo.txt").write_text(by_id("topo-a100x8-compact-spaces"), encoding="utf-8")
    Path("topo.xml").write_text(nccl.hgx(), encoding="utf-8")
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(line)[1:])

    assert (stop.value.code or 0) == 0
    assert "GPU" in click.unstyle(capsys.readouterr().out) or "drawing" in Path("machine.html").read_text()


def test_every_class_is_explained():
    assert list(ROWS) == list(MEANING)


@pytest.mark.parametrize("cls", ["PIX", "PXB", "PHB", "NODE", "SYS"])
def test_the_factors_are_those_that_are_used(cls):
    rates = healthy_rates()
    assert ROWS[cls].startswith(f"{rates.direct[cls][0]:.2f} of")
    assert ("on Intel" in ROWS[cls]) == (cls in rates.direct_intel)
    assert cls not in rates.direct_intel or f"{rates.direct_intel[cls]:.2f} on Intel" in ROWS[cls]
