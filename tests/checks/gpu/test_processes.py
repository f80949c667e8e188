"""Processes on a GPU."""

import msgspec
import pytest

from gpucheck.checks.gpu import processes
from gpucheck.model import GpuProcess
from tests.checks.judging import PASS, SKIP, WARN, judge, with_health
from tests.fakes import SYSTEM, facts
from tests.machines import h100, reading


def host(*users, container=None):
    """A GPU that is in use, with these processes."""
    gpu = with_health(h100(0), processes=users, memory_used_bytes=70 << 30, gpu_utilization_percent=97)
    return facts(nvml=reading(gpu), system=msgspec.structs.replace(SYSTEM, container=container))


def test_a_graphics_process_does_not_make_a_gpu_busy():
    """A desktop is not a job."""
    (finding,) = judge(processes, host(GpuProcess(pid=9, kind="graphics")))

    assert finding.verdict is PASS


MPS = GpuProcess(pid=41, kind="compute", name="/usr/bin/nvidia-cuda-mps-server", memory_bytes=30 << 20)
JOB = GpuProcess(pid=42, kind="compute", name="python3")


@pytest.mark.parametrize(
    ("users", "code"),
    [((MPS,), "mps-server-running"), ((MPS, JOB), "processes-running"), ((JOB,), "processes-running")],
)
def test_the_mps_server_is_named_because_it_never_ends(users, code):
    """It holds the GPU without a job, so that nothing is ever measured there; with a job it is the job's."""
    (finding,) = judge(processes, host(*users))

    assert (finding.verdict, finding.cause, finding.code) == (WARN, "gpu-busy", f"gpu.{code}")


def test_a_process_without_a_reported_memory_size_has_no_0_mib():
    (finding,) = judge(processes, host(JOB))

    assert finding.evidence[0] == "process 42 python3: memory not reported"


@pytest.mark.parametrize(("users", "verdict"), [((), SKIP), ((JOB,), WARN)])
def test_no_process_in_a_container_is_no_proof_of_an_idle_gpu(users, verdict):
    """NVML lists those of its own PID namespace only; what the GPU itself reports is in the evidence."""
    (finding,) = judge(processes, host(*users, container="kubernetes"))

    assert finding.verdict is verdict
    assert {"GPU memory in use: 71680 MiB", "GPU utilization: 97 %"} <= set(finding.evidence)
    assert verdict is not SKIP or finding.values == {"container": "kubernetes"}
