"""Variables that change what CUDA programs see and do."""

import msgspec
import pytest

from gpucheck.checks.host import environment
from tests.checks.judging import PASS, UNKNOWN, WARN, judge
from tests.fakes import facts
from tests.machines import p100, reading

AZURE = "NCCL_IB_PCI_RELAXED_ORDERING=1\nNCCL_TOPO_FILE=/opt/microsoft/ndv5/topo.xml\nNCCL_IGNORE_CPU_AFFINITY=1\n"


@pytest.mark.parametrize(
    ("variables", "files", "count"),
    [
        ({"NCCL_DEBUG": "INFO", "NCCL_P2P_DISABLE": "0"}, {}, 0),
        ({"NCCL_P2P_DISABLE": "false", "NCCL_NVLS_ENABLE": "off", "NCCL_ALGO": ""}, {}, 1),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_ALGO": "Tree"}, {}, 2),
        ({}, {"/etc/nccl.conf": "# site\nNCCL_IB_DISABLE = 1\nNCCL_DEBUG=WARN\n"}, 1),
        # As Azure/azhpc-images writes it for machines with eight H100; another topology is a leftover.
        ({}, {"/etc/nccl.conf": AZURE}, 0),
        ({}, {"/etc/nccl.conf": AZURE + "NCCL_P2P_DISABLE=1\n"}, 1),
        ({}, {"/etc/nccl.conf": AZURE.replace("microsoft", "tuning")}, 2),
        ({"NCCL_CONF_FILE": "/site/nccl.conf"}, {"/site/nccl.conf": "NCCL_P2P_DISABLE=1\n"}, 1),
    ],
)
def test_leftover_variables_are_named_with_what_they_do(variables, files, count):
    """Harmless values are left alone; nccl.conf counts as much as the environment."""
    found = judge(environment, facts(environment=variables, files=files))
    complaints = [finding for finding in found if finding.verdict is WARN]

    assert len(complaints) == count
    assert {f.code for f in complaints} <= {"host.variable-in-file" if files else "host.variable-set"}
    assert all(f.cause == "leftover-environment" for f in complaints)
    assert count or [f.verdict for f in found] == [PASS]


@pytest.mark.parametrize("path", ["/root/nccl.conf", "nccl.conf"])
def test_a_file_of_nccl_that_cannot_be_read_is_unknown(path):
    (finding,) = judge(environment, facts(environment={"NCCL_CONF_FILE": path}))

    assert (finding.verdict, finding.code) == (UNKNOWN, "host.nccl-file-unreadable")


@pytest.mark.parametrize(
    ("chosen", "job", "visible"),
    [
        ("0,1", {}, None),
        ("1, 0", {}, None),
        ("GPU-1,GPU-0", {}, None),
        ("0", {}, 1),
        ("0", {"SLURM_JOB_ID": "77"}, None),
        ("1,9,0", {}, 1),
        ("", {}, 0),
        ("-1", {}, 0),
        ("0,0", {}, 0),
        ("MIG-4a1b", {}, None),
    ],
)
def test_a_leftover_choice_of_devices_is_told_by_what_it_hides(chosen, job, visible):
    """As CUDA reads it: up to the first that is none, nothing at all if one is named twice; a job's share is meant."""
    host = facts(nvml=reading(p100(0), p100(1)), environment={"CUDA_VISIBLE_DEVICES": chosen, **job})
    (finding,) = judge(environment, host)

    assert finding.verdict is (PASS if visible is None else WARN)
    if visible is not None:
        assert (finding.cause, finding.seen) == ("leftover-environment", f"CUDA_VISIBLE_DEVICES={chosen}")
        assert (finding.code, finding.values["visible"], finding.values["total"]) == ("host.gpus-hidden", visible, 2)


@pytest.mark.parametrize("chosen", ["0,1,2", "0", "2,1,0"])
def test_devices_are_numbered_as_cuda_numbers_them_when_nvml_lost_one(chosen):
    """NVML's indices are then 0, 2 and 3; CUDA's are 0, 1 and 2."""
    gpus = [msgspec.structs.replace(p100(n), index=index) for n, index in ((0, 0), (1, 2), (2, 3))]
    (finding,) = judge(environment, facts(nvml=reading(*gpus), environment={"CUDA_VISIBLE_DEVICES": chosen}))

    assert finding.verdict is (PASS if len(chosen) == 5 else WARN)


def test_hidden_devices_are_unknown_without_nvml():
    """Which GPUs the variable hides cannot be known; the driver check reports why."""
    (finding,) = judge(environment, facts(environment={"CUDA_VISIBLE_DEVICES": "0"}))

    assert (finding.verdict, finding.because_of) == (UNKNOWN, "driver")
