"""NVLinks between two GPUs: direct, through switches, and when an end says less than the other."""

import msgspec
import pytest

from gpucheck.model import NvLink
from gpucheck.topology import joint
from tests.machines import p100

A, B = (msgspec.structs.replace(p100(n), pci_bus_id=f"0000:{n}b:00.0") for n in range(2))


def links(gpu, *remotes, kind="gpu", active=True):
    ports = tuple(
        NvLink(link=n, active=active, remote_kind=kind, remote_bus_id=remote) for n, remote in enumerate(remotes)
    )
    return msgspec.structs.replace(gpu, nvlinks=ports)


def switched(gpu, up, down=0):
    ports = [
        NvLink(link=n, active=n < up, remote_kind="switch", remote_bus_id="0000:05:00.0") for n in range(up + down)
    ]
    return msgspec.structs.replace(gpu, nvlinks=tuple(ports))


@pytest.mark.parametrize(
    ("a", "b", "count", "agreed"),
    [
        (A, B, 0, True),
        (links(A, B.pci_bus_id, B.pci_bus_id), links(B, A.pci_bus_id, A.pci_bus_id), 2, True),
        (links(A, B.pci_bus_id.upper()), links(B, A.pci_bus_id), 1, True),
        (links(A, "0000:99:00.0"), links(B, "0000:98:00.0"), 0, True),
        (links(A, B.pci_bus_id, active=False), links(B, A.pci_bus_id, active=False), 0, True),
        (switched(A, 18), switched(B, 18), 18, True),
        (switched(A, 17, down=1), switched(B, 18), 17, True),
        (links(A, B.pci_bus_id, B.pci_bus_id), links(B, A.pci_bus_id), 1, False),
        (links(A, B.pci_bus_id, B.pci_bus_id), links(B, None, None, kind=None), 2, True),
        (links(A, B.pci_bus_id, B.pci_bus_id), links(B, None, kind="unknown"), 1, False),
    ],
)
def test_the_links_both_ends_agree_on_count(a, b, count, agreed):
    """An end that hides its peers is believed as far as its unnamed links go."""
    assert (joint(a, b).links, joint(a, b).agreed) == (count, agreed)
    assert (joint(b, a).links, joint(b, a).agreed) == (count, agreed)
