"""How a finding's subject is named: NVML's index where it is known, the bus id always."""

import pytest

from gpucheck.model import Finding, TopologyGpu, Verdict, named, where

# NVML keeps the index of a GPU when another one is lost: 0, 2, 3.
GPUS = tuple(
    TopologyGpu(index=i, uuid=f"GPU-{i}", pci_bus_id=f"0000:{bus}:00.0") for i, bus in ((0, "19"), (2, "4c"), (3, "5d"))
)
A, C, LOST = "0000:19:00.0", "0000:4c:00.0", "0000:3b:00.0"


def finding(subject):
    return Finding(check="x", verdict=Verdict.PASS, subject=subject)


@pytest.mark.parametrize(
    ("subject", "text", "keys"),
    [
        ("host", "", (None, None, None, None)),
        (f"gpu:{C}", f"GPU 2 ({C})", (2, "GPU-2", None, None)),
        (f"gpu:{LOST}", f"GPU {LOST}", (None, None, None, None)),
        (f"pair:{A}-{C}", f"GPU 0 ({A}) - GPU 2 ({C})", (0, "GPU-0", 2, "GPU-2")),
        (f"pair:{LOST}-{C}", f"GPU {LOST} - GPU 2 ({C})", (None, None, 2, "GPU-2")),
        (f"pair:{A}-{LOST}", f"GPU 0 ({A}) - GPU {LOST}", (0, "GPU-0", None, None)),
        (f"link:{C}/3", f"GPU 2 ({C}) NVLink 3", (2, "GPU-2", None, None)),
        (f"link:{C}", f"GPU 2 ({C})", (2, "GPU-2", None, None)),
        ("link:0000:15:01.0", "PCIe device 0000:15:01.0", (None, None, None, None)),
        ("link:uplink", "uplink", (None, None, None, None)),
        ("wheel torch", "wheel torch", (None, None, None, None)),
    ],
)
def test_a_subject_is_named_by_nvmls_index_and_bus_id(subject, text, keys):
    (found,) = named([finding(subject)], GPUS)

    assert where(found) == text
    assert (found.gpu_index, found.gpu_uuid, found.peer_index, found.peer_uuid) == keys
    assert found.subject == subject


def test_a_gpu_without_a_bus_id_has_its_position_only():
    (found,) = named([finding("gpu:GPU3")], [TopologyGpu(index=3, pci_bus_id="GPU3")])

    assert where(found) == "GPU 3"
