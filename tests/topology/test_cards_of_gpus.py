"""Network cards of the GPUs, and the variables that have a job use them."""

import pytest

from gpucheck.topology.nics import cards_of_gpus, variables
from tests.checks.network.cards import DOWN, UP, card, grace, host, named, nic, port


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        (host(card(), card()), ("NCCL_IB_HCA==mlx5_0,mlx5_1", "UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1")),
        (host(card(), card(DOWN)), ("NCCL_IB_HCA==mlx5_0", "UCX_NET_DEVICES=mlx5_0:1")),
        (host(card(UP, port(number=2))), ("NCCL_IB_HCA==mlx5_0", "UCX_NET_DEVICES=mlx5_0:1,mlx5_0:2")),
        (host(card(DOWN)), ()),
        (host(), ()),
    ],
)
def test_active_ports_of_the_cards_are_named(found, lines):
    assert variables(cards_of_gpus(found.rdma, found.pci)) == lines


def test_grace_has_a_card_a_gpu_and_no_switch():
    four, three = grace(*(card(),) * 4), grace(*(card(),) * 3)

    assert [one.device.name for one in cards_of_gpus(four.rdma, four.pci)] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]
    assert cards_of_gpus(three.rdma, three.pci) == ()


def test_a_card_elsewhere_is_none_of_the_gpus():
    pci = (*host(card(), card()).pci, nic(7, "mlx5_2", path=("0000:70:00.0",)))

    assert [one.device.name for one in cards_of_gpus(named([card()] * 3), pci)] == ["mlx5_0", "mlx5_1"]
