"""Whole texts of public issues: prose, several tools' output and reports of frameworks in one."""

import pytest

from gpucheck import imports
from gpucheck.model import Verdict
from gpucheck.model.paste import Message, Part, Reading
from gpucheck.run.pastes import diagnosis
from tests.imports.pastes.reading import diagnosed, read

REPORT = """PyTorch version: 2.6.0+cu124
Is CUDA available: True
GPU models and configuration: GPU 0: NVIDIA H100 80GB HBM3
GPU 1: NVIDIA H100 80GB HBM3
Nvidia driver version: 550.90.07
[pip3] torch==2.6.0
NCCL_P2P_DISABLE=1
NCCL_VERSION=2.21.5
LD_LIBRARY_PATH=/usr/local/cuda/lib64
"""
JOURNAL = """Sep 18 03:19:01 host nvidia-fabricmanager-start.sh[4756]: request to query NVSwitch device information \
from NVSwitch driver failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]
Sep 18 03:19:01 host systemd[1]: nvidia-fabricmanager.service: Control process exited, code=exited, status=1/FAILURE
"""
TOPOLOGY = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\nGPU0\tX\tNV18\tNV18\tNV18\nGPU1\tNV18\tX\tNV18\tNV18\n"
    "GPU2\tNV18\tNV18\tX\tNV18\nGPU3\tNV18\tNV18\tNV18\tX\n"
)


def test_a_report_gives_names_driver_and_switches_of_nccl():
    seen = diagnosed(REPORT).observations

    assert [gpu.model for gpu in seen.gpus] == ["NVIDIA H100 80GB HBM3"] * 2
    assert seen.host.driver == "550.90.07"
    assert seen.environment == {"NCCL_P2P_DISABLE": "1"}


def test_a_report_of_fewer_gpus_than_the_topology_is_of_the_same_machine():
    seen = diagnosed(f"{REPORT}\nGPU Topology:\n{TOPOLOGY}").observations

    assert len(seen.gpus) == 4
    assert seen.gpus[1].model == "NVIDIA H100 80GB HBM3"


def test_a_report_of_more_gpus_than_the_topology_is_of_the_same_machine():
    text = "CUDA available: True\nGPU 0,1,2,3,4,5,6,7: NVIDIA H100 80GB HBM3\n"

    assert {gpu.model for gpu in diagnosed(text + TOPOLOGY).observations.gpus} == {"NVIDIA H100 80GB HBM3"}


def test_a_report_without_gpus_is_read():
    found = read("vLLM Version: 0.5.1\nOS: Ubuntu 22.04\nGPU 999: NVIDIA X\n")

    assert found.parts[0].looked_at == ("versions in an environment report",)
    assert not found.unread


def test_prose_is_no_report():
    with pytest.raises(imports.ImportProblem):
        imports.read_all(b"OS: CentOS 7\nGPU 0: NVIDIA H100\n", "prose", "environment-report")


def test_a_report_says_that_no_gpu_can_be_used():
    (finding,) = diagnosed("PyTorch version: 2.6.0\nIs CUDA available: False\n").findings

    assert finding.verdict is Verdict.UNKNOWN
    assert "no GPU" in str(finding.seen)


def test_fabric_manager_with_nothing_to_do_is_not_called_down():
    (finding,) = diagnosed(JOURNAL).findings

    assert finding.verdict is Verdict.WARN
    assert finding.cause is None


def test_a_text_that_only_speaks_of_an_xid_says_what_to_give():
    with pytest.raises(imports.ImportProblem, match="explain xid:79"):
        read("You are getting a XID 79, fallen off the bus.")


def test_a_run_without_tables_has_names_and_peer_access():
    text = (
        "Device: 0, NVIDIA GeForce RTX 4090, pciBusID: 2, pciDeviceID: 0, pciDomainID:0\n"
        "Device: 1, NVIDIA GeForce RTX 4090, pciBusID: 17, pciDeviceID: 0, pciDomainID:0\n"
        "Device=0 CAN Access Peer Device=1\nDevice=1 CANNOT\n"
    )
    seen = diagnosed(text).observations

    assert seen.p2p_access == ((None, True), (None, None))
    assert [gpu.bus_id for gpu in seen.gpus] == ["0000:02:00.0", "0000:17:00.0"]


def test_two_programs_with_one_cause_are_one_finding():
    part = Part(
        messages=(
            Message(key="container-error.mismatch", text="nvml error: driver/library version mismatch"),
            Message(key="nvidia-smi.version-mismatch", text="x" * 9000),
        )
    )
    (finding,) = diagnosis([Reading(parts=(part,))], sources=("issue",)).findings

    assert len(finding.evidence) == 2
    assert len(finding.evidence[1]) == 500
