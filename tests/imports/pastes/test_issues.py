"""Whole texts of public issues: prose, several tools' output and reports of frameworks in one."""

import pytest

from gpucheck import imports
from gpucheck.model import Verdict
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


def test_fabric_manager_with_nothing_to_do_is_not_called_down():
    (finding,) = diagnosed(JOURNAL).findings

    assert finding.verdict is Verdict.WARN
    assert finding.cause is None


def test_a_text_that_only_speaks_of_an_xid_says_what_to_give():
    with pytest.raises(imports.ImportProblem, match="explain xid:79"):
        read("You are getting a XID 79, fallen off the bus.")
