"""Advice that can be followed: the best GPUs for a job, where to run them, and what is uneven about a machine."""

from itertools import combinations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck import imports
from gpucheck.topology import with_advice, with_expectations
from gpucheck.topology.advice import best_group, nearness
from tests.imports import nccl
from tests.imports.corpus import by_id
from tests.machines import GEN5_X16
from tests.topology.servers import narrowed, topology
from tests.topology.strategies import pasted

MESH = with_expectations(imports.read(nccl.mesh()))


def advice_on(made):
    return with_advice(made).advice or pytest.fail("no advice")


def slowest(made, members):
    """Of a set of positions, by nearness."""
    return min((nearness(made.matrix[a][b]) for a, b in combinations(members, 2)), default=0)


@settings(max_examples=60)
@given(pasted(), st.integers(1, 6))
def test_no_set_has_a_faster_slowest_pair(made, size):
    """Held against every set of small machines, and a sample of large ones."""
    count = len(made.gpus)
    if size > count:
        with pytest.raises(ValueError, match="does not fit"):
            best_group(made, size)
        return
    choice = best_group(made, size)
    best = max(slowest(made, members) for members in list(combinations(range(count), size))[:3000])

    assert len(set(choice.gpus)) == size
    assert slowest(made, choice.gpus) >= best


def test_a_reduced_link_is_avoided():
    made = topology(8, 2, uplink={0: narrowed(GEN5_X16, width=4)})

    assert best_group(made, 4).gpus == (4, 5, 6, 7)


def test_beyond_sixteen_gpus_none_are_selected():
    made = topology(32, 8)

    assert advice_on(made).best == ()
    with pytest.raises(ValueError, match="up to 16 GPUs, and this one has 32"):
        best_group(made, 8)


def test_a_choice_is_made_by_uuid_or_by_an_order_that_is_fixed():
    """Without PCI_BUS_ID, CUDA numbers the fastest GPU 0."""
    assert best_group(topology(4), 2).environment == "CUDA_VISIBLE_DEVICES=GPU-00000000,GPU-00000001"
    assert best_group(MESH, 2).environment == "CUDA_VISIBLE_DEVICES=0,3 CUDA_DEVICE_ORDER=PCI_BUS_ID"


def test_each_gpu_has_its_place():
    last = advice_on(topology(8, 4)).pinning[7]

    assert (last.gpu, last.numa_node, last.cpus, last.nics) == (7, 1, "64-127", ("mlx5_1",))
    assert last.command == "numactl --cpunodebind=1 --membind=1"


def sentences(made):
    return advice_on(made).asymmetries


def test_a_mesh_says_which_pairs_have_two_links_one_or_none():
    (sentence,) = sentences(MESH)

    assert sentence.startswith("NVLink joins 16 of 28 pairs: 8 by NV2 (0-3, 0-4, 1-2")
    assert "8 by NV1" in sentence
    assert "12 have none (0-5, 0-6" in sentence


def test_bridged_pairs_are_islands_and_a_lone_gpu_is_named():
    said = sentences(imports.read(by_id("topo-3gpu-nv4-pair-plus-one")))

    assert any("islands: {" in sentence and "without NVLink to any peer: " in sentence for sentence in said)


def test_a_gpu_with_fewer_links_to_its_peers_is_named():
    text = nccl.mesh().replace('target="0000:40:00.0" count="2"', 'target="0000:40:00.0" count="1"', 1)
    text = text.replace('target="0000:10:00.0" count="2"', 'target="0000:10:00.0" count="1"', 1)

    assert any(
        "Active NVLinks: GPU " in sentence and "others have 6" in sentence for sentence in sentences(imports.read(text))
    )


def test_gpus_without_a_network_card_of_their_own_are_named():
    made = topology(8, 2)
    left = msgspec.structs.replace(made, nics=made.nics[:2])

    assert "GPU 0-3 have a network card on the same PCIe switch or host bridge; GPU 4-7 do not" in sentences(left)
