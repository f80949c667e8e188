"""NVLinks between two GPUs: direct, through switches, and when an end says less than the other."""

import msgspec
import pytest

from gpucheck.model import NVSWITCH, NvLink, PciDevice
from gpucheck.topology import NvLinks, build
from tests.machines import h100, on_bus, p100, reading

A, B = (msgspec.structs.replace(p100(n), pci_bus_id=f"0000:{n}b:00.0") for n in range(2))

ELSEWHERE = "0000:99:00.0", "0000:98:00.0"


def links(gpu, *remotes, kind="gpu", active=True):
    ports = tuple(
        NvLink(link=n, active=active, remote_kind=kind, remote_bus_id=remote) for n, remote in enumerate(remotes)
    )
    return msgspec.structs.replace(gpu, nvlinks=ports)


def switched(gpu, up, down=0):
    made = links(gpu, *["0000:05:00.0"] * (up + down), kind="switch")
    ports = (msgspec.structs.replace(link, active=link.link < up) for link in made.nvlinks)
    return msgspec.structs.replace(gpu, nvlinks=tuple(ports))


@pytest.mark.parametrize(
    ("a", "b", "count", "agreed"),
    [
        (A, B, 0, True),
        (links(A, B.pci_bus_id, B.pci_bus_id), links(B, A.pci_bus_id, A.pci_bus_id), 2, True),
        (links(A, B.pci_bus_id.upper()), links(B, A.pci_bus_id), 1, True),
        (links(A, ELSEWHERE[0]), links(B, ELSEWHERE[1]), 0, True),
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
    pci = [PciDevice(bus_id=bus_id, vendor_id="", device_id="", class_id="") for bus_id in ELSEWHERE]
    for gpus in ((a, b), (b, a)):
        joint = NvLinks(gpus, pci).between(0, 1)
        assert (joint.links, joint.ends[0] == joint.ends[1]) == (count, agreed)


def remote(gpu, kind, bus_id, count=18):
    """The GPU with that many links, all of them to the same end."""
    return links(gpu, *[bus_id] * count, kind=kind)


HIDDEN = [(kind, bus_id) for kind in (None, "unknown", "gpu", "switch") for bus_id in (None, "0000:c5:00.0")]
HIDDEN.remove(("gpu", None))


@pytest.mark.parametrize(("kind", "bus_id"), HIDDEN)
def test_links_to_what_the_host_cannot_see_lead_to_a_switch(kind, bus_id):
    """NCCL: "Remote NVLink device is not visible inside this VM. Assume NVSwitch." (src/graph/xml.cc, nccl#1182)"""
    gpus = [remote(h100(n), kind, bus_id) for n in range(3)]
    made = build(reading(*gpus, ancestor="SYS"), on_bus(*gpus), False)

    assert {pair.cls for pair in made.pairs} == {"NV18"}
    assert {pair.expected.unidirectional_gb_s > 300 for pair in made.pairs} == {True}
    assert {bundle.b for bundle in made.wiring.nvlinks} == {bus_id if kind == "switch" and bus_id else NVSWITCH}


def test_links_to_a_gpu_without_a_name_are_unknown_and_no_switch():
    gpus = [remote(h100(n), "gpu", None) for n in range(2)]
    made = build(reading(*gpus, ancestor="SYS"), on_bus(*gpus), False)
    (finding,) = (f for f in made.findings if f.because_of == "nvlink")

    assert {pair.cls for pair in made.pairs} == {"SYS"}
    assert finding.code == "topology.far-end-not-reported"


def test_links_to_a_gpu_that_nvml_does_not_list_join_nothing():
    """A lost GPU, or one that the container was not given: the PCI bus still shows it."""
    lost = PciDevice(bus_id="0000:99:00.0", vendor_id="10de", device_id="1db1", class_id="030200")
    gpus = [remote(h100(n), "gpu", lost.bus_id, count=2) for n in range(2)]

    assert NvLinks(gpus, (*on_bus(*gpus), lost)).between(0, 1).links == 0


def test_mesh_with_a_gpu_missing_gets_no_switch():
    """Links to a GPU that is gone altogether, on GPUs that have direct links to others."""
    gone = "0000:99:00.0"
    gpus = [
        links(h100(0), h100(1).pci_bus_id, gone),
        links(h100(1), h100(0).pci_bus_id, gone),
        links(h100(2), h100(3).pci_bus_id, gone),
        links(h100(3), h100(2).pci_bus_id, gone),
    ]
    nvlinks = NvLinks(gpus)

    assert [nvlinks.between(0, j).links for j in (1, 2, 3)] == [1, 0, 0]
