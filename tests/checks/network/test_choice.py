"""NCCL_IB_HCA as NCCL reads it, against the network cards of the GPUs."""

import pytest

from tests.checks.judging import SKIP, judge
from tests.checks.network.cards import DOWN, card, host, named, nic
from tests.fakes import facts

# mlx5_0 and mlx5_1 belong to GPUs; mlx5_2 is somewhere else.
CARDS = host(card(), card())
PCI = (*CARDS.pci, nic(7, "mlx5_2", path=("0000:70:00.0",)))


def with_value(value):
    return facts(pci=PCI, rdma=named([card()] * 3), environment={"NCCL_IB_HCA": value})


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("mlx5_0,mlx5_1", None),
        ("=mlx5_0:1,mlx5_1:1", None),
        ("^mlx5_2", None),
        ("^=mlx5_2", None),
        ("mlx5_0", "network.choice-leaves-out"),
        ("^mlx5_0,mlx5_2", "network.choice-leaves-out"),
        ("mlx5", "network.choice-of-others"),
        ("", "network.choice-of-others"),
        ("=mlx5_2", "network.choice-of-others"),
        ("^mlx5_9", "network.choice-of-others"),
        ("=mlx5", "network.choice-not-there"),
        ("mlx5_0,mlx5_1,mlx5_9", "network.choice-not-there"),
        (",,:1", "network.choice-of-others"),
    ],
)
def test_values_as_nccl_reads_them(value, code):
    (finding,) = judge("nic-choice", with_value(value))

    assert finding.code == code
    assert code is None or finding.wanted == "NCCL_IB_HCA==mlx5_0,mlx5_1"


def test_a_name_is_the_beginning_of_names():
    """mlx5_1 also takes mlx5_10."""
    many = tuple(nic(place, f"mlx5_{place}", path=("0000:70:00.0",)) for place in range(2, 11))
    found = facts(pci=CARDS.pci + many, rdma=named([card()] * 11), environment={"NCCL_IB_HCA": "mlx5_0,mlx5_1"})

    (finding,) = judge("nic-choice", found)

    assert (finding.code, finding.values["devices"]) == ("network.choice-of-others", "mlx5_10")


def test_a_port_that_is_down_is_not_asked_for():
    found = host(card(), card(), card(DOWN), environment={"NCCL_IB_HCA": "=mlx5_0,mlx5_1"})

    assert [finding.code for finding in judge("nic-choice", found)] == [None]


def test_without_the_variable_nccl_chooses():
    assert [finding.verdict for finding in judge("nic-choice", CARDS)] == [SKIP]
