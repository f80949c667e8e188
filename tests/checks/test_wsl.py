"""A simulated machine as WSL shows it: NVML and /dev/dxg, and nothing of the GPU in /sys, /proc and /dev."""

import shutil
from pathlib import Path

import pytest

from gpucheck import simulator
from gpucheck.host import LiveSource, Place
from gpucheck.knowledge.codes import codes, reporting
from gpucheck.measure.engines.driver import calls
from gpucheck.measure.engines.driver.calls import CudaError
from gpucheck.model import Verdict
from gpucheck.run import verification as run
from tests.shared import sampled

QUICK = run.select(run.all_steps(), level="quick", only=(), skip=())
# NVML in WSL lists no processes and offers no peer-to-peer access (CUDA on WSL user guide, known limitations).
NOT_OFFERED = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")


def as_wsl(machine: Path) -> None:
    """The driver is that of Windows: no PCI device, no module, no device file of NVIDIA."""
    root = machine / "root"
    for gone in (
        "sys/bus/pci",
        "sys/module",
        "proc/driver",
        "lib/modules",
        "sys/class/iommu",
        "sys/kernel/iommu_groups",
    ):
        shutil.rmtree(root / gone, ignore_errors=True)
    for name in (root / "dev").glob("nvidia*"):
        shutil.rmtree(name) if name.is_dir() else name.unlink()
    (root / "dev/dxg").touch()


@pytest.fixture(scope="module", params=sampled(["rtx4090-x2", "rtx5090-x2", "l40s-x4"], (0,)))
def report(request, tmp_path_factory, cache):
    machine = tmp_path_factory.mktemp("wsl") / "machine"
    faults = [f"nvml-refuse:call={call},code=3" for call in NOT_OFFERED]
    profile = simulator.load(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setenv("GPUCHECK_SIMULATOR", str(machine))
        simulator.make(profile, machine, [*faults, *(f"p2p-status:pair=0-{n}" for n in range(1, 2))], ())
        as_wsl(machine)
        yield run.verify(LiveSource(Place(isolated=True, deadline_s=20.0, machine=machine)), QUICK)


def test_no_word_is_false(report):
    """Whatever is absent by design is neither a fault nor unknown; the GPUs are there."""
    wrong = [f for f in report.findings if f.verdict in (Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN)]

    assert not [(f.check, f.verdict.value, f.cause, f.subject, f.seen, f.why) for f in wrong]
    assert [f.verdict for f in report.findings if f.check in ("inventory", "driver")] == [Verdict.PASS, Verdict.PASS]


def test_what_is_absent_is_skipped_with_its_reason(report):
    absent = [f"session.{name}" for name in codes("session") if name.startswith("wsl-")]
    skipped = {(f.check, f.code) for f in report.findings if f.code in absent}

    assert skipped == {(check, code) for code in absent for check, _ in reporting(code)}


@pytest.mark.parametrize("wsl", [True, False])
def test_a_failed_start_of_cuda_does_not_blame_a_file_that_wsl_does_not_have(wsl, tmp_path, monkeypatch):
    dxg = tmp_path / "dxg"
    monkeypatch.setattr(calls, "WSL", dxg)
    if wsl:
        dxg.touch()
    problem = calls.not_opened(CudaError("cuInit", 999), "", tmp_path / "nvidia-uvm")

    assert ("nvidia-uvm" in str(problem)) is not wsl
