"""The tree shows each GPU and card once, where it hangs, how wide its link is, and what runs below that."""

import click
import msgspec

from gpucheck import imports
from gpucheck.render.topology.tree import to_tree
from gpucheck.topology import infer_wiring
from tests.imports import nccl
from tests.imports.corpus import by_id
from tests.machines import GEN5_X16
from tests.topology.servers import narrowed, topology


def plain(made, **options):
    return click.unstyle(to_tree(made, **options))


def test_gpus_hang_below_their_switch_host_bridge_and_node():
    lines = plain(topology(4, 2)).splitlines()

    assert lines[0] == "4 x NVIDIA RTX PRO 6000 Blackwell Server Edition, 2 network cards"
    assert lines[1] == "├── NUMA node 0  AMD, CPUs 0-63"
    assert lines[2] == "│   └── host bridge 0000:00"
    assert lines[3] == "│       └── PCIe switch  0000:20:00.0  Gen5 x16"
    assert lines[4].startswith("│           ├── NIC0 mlx5_0  0000:c0:00.0") or "GPU0" in lines[4]
    assert all(sum(f"── GPU{n}  " in line for line in lines) == 1 for n in range(4))


def test_nvlinks_are_told_by_switch_or_by_peer():
    assert "4 NVSwitches: 18 links from each of GPU 0-7" in plain(imports.read(nccl.hgx()))
    assert "GPU0 to GPU1 by 1, GPU2 by 1, GPU3 by 2, GPU4 by 2" in plain(imports.read(nccl.mesh()))
    assert "none between these GPUs" in plain(topology(2))


def test_a_reduced_link_is_marked_and_explained():
    text = plain(topology(4, 2, uplink={1: narrowed(GEN5_X16, width=8)}))

    assert "PCIe switch  0000:21:00.0  Gen5 x8 of x16  reduced" in text
    assert text.count("  reduced") == 1
    assert "WARN    topology  PCIe device 0000:21:00.0" in text


def test_a_paste_says_that_its_tree_was_worked_out():
    text = plain(infer_wiring(imports.read(by_id("topo-wrx90-3switch-hierarchical"))))

    assert text.startswith("8 GPUs, 0 network cards, worked out from the path classes")
    assert "PCIe switch\n" in text


def test_simulated_is_the_first_thing_said():
    made = msgspec.structs.replace(topology(2), simulated=True)

    assert plain(made, about="p100").startswith("SIMULATED p100: no real GPU")


def test_gpus_of_several_models_have_their_name_each():
    made = topology(2)
    mixed = msgspec.structs.replace(made, gpus=(msgspec.structs.replace(made.gpus[0], name="Tesla T4"), made.gpus[1]))

    assert plain(mixed).startswith("2 GPUs, 1 network card\n")
    assert "GPU0 Tesla T4  0000:60:00.0" in plain(mixed)
