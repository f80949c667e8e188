"""The training steps of verify: version truth first, what it refuses is not trained, and simulated faults arrive."""

import json

import pytest
from msgspec.structs import replace

from gpucheck import simulator
from gpucheck.model import DriverState, Verdict
from gpucheck.model.facts import Facts
from gpucheck.model.smoke import SmokeFailure
from gpucheck.run import verification as run
from gpucheck.run.steps import train
from gpucheck.run.steps.versions import NAME, refused, version_consistency
from gpucheck.simulator.faults import all_faults
from gpucheck.train.spec import SmokeOptions
from tests.fakes import SYSTEM, facts
from tests.machines import LOADED, on_bus, p100, reading
from tests.train.outcomes import HANG

P100 = facts(nvml=reading(p100(0), p100(1)), pci=on_bus(p100(0), p100(1)), driver=LOADED)


def with_torch(version: str, **changes: object) -> Facts:
    values = {"python": {"torch": version}, "nvml": P100.nvml, "pci": P100.pci, "driver": LOADED} | changes
    return facts(**values)  # type: ignore[arg-type]


def test_a_build_without_code_for_the_gpu_fails_and_names_the_build_to_install():
    """P100 is sm_60, which the CUDA 12.8 builds have left out."""
    findings = version_consistency(with_torch("2.8.0+cu128"))
    bad = [finding for finding in findings if finding.verdict is Verdict.FAIL]

    assert {finding.subject for finding in bad} == {"gpu:0000:03:00.0", "gpu:0000:04:00.0"}
    assert {finding.cause for finding in bad} == {"arch-not-in-build"}
    assert all("compute capability 6.0" in str(finding.seen) for finding in bad)
    for finding in bad:
        assert finding.check == NAME
        assert finding.values["driver"]
        healed = version_consistency(with_torch(str(finding.values["build"]).removeprefix("torch ")))
        assert not any(f.cause == "arch-not-in-build" for f in healed), "the build that is named has code for it"


def test_build_that_cannot_run_stops_its_framework_also_where_no_set_fits_the_host():
    host = with_torch("2.8.0+cu128", system=replace(SYSTEM, os_id="gentoo"))

    (stopped,) = refused(version_consistency(host)).values()
    assert (stopped.code, stopped.values["framework"]) == ("run.framework-lacks-code-unresolved", "torch")


def test_library_without_code_for_the_gpu_stops_no_framework():
    """It is a wheel of its own, and pip can replace it."""
    libraries = {"torch": "2.7.1+cu126", "nvidia-cudnn-cu12": "9.11.0.98"}
    findings = version_consistency(with_torch("", python=libraries))

    assert Verdict.FAIL in {finding.verdict for finding in findings}
    assert refused(findings) == {}


def test_a_driver_that_is_too_old_for_the_builds_cuda_fails():
    old = DriverState(loaded_version="470.256.02", loaded_flavour="proprietary")
    bad = [f for f in version_consistency(with_torch("2.7.1+cu126", driver=old)) if f.verdict is Verdict.FAIL]

    assert [finding.cause for finding in bad] == ["library-mismatch"]
    assert "driver 470.256.02" in str(bad[0].seen)


@pytest.mark.parametrize(
    ("host", "code"),
    [
        (facts(), "run.framework-not-installed"),
        (with_torch("2.13.0+cpu"), "run.framework-without-gpu"),
        (facts(python={"torch": "2.7.1+cu126"}), "run.framework-without-gpu"),
    ],
)
def test_where_nothing_can_mismatch_it_is_a_skip_with_its_reason(host, code):
    (finding,) = version_consistency(host)
    assert (finding.verdict, finding.code) == (Verdict.SKIP, code)


def test_what_cannot_train_is_not_trained(monkeypatch):
    monkeypatch.setattr(train, "run_smoke", lambda options: pytest.fail("a rank was started"))
    host = with_torch("2.8.0+cu128")
    assert set(refused(version_consistency(host))) == {"torch"}

    steps = run.select(run.all_steps(), level="standard", only=("smoke-ddp",), skip=())
    (finding,) = run.verify(host, steps).findings

    assert (finding.verdict, finding.seen) == (Verdict.UNKNOWN, "training on GPUs unknown: smoke-versions fails")
    assert finding.fix.startswith("install torch")


def test_a_missing_package_is_told_with_what_installs_it(monkeypatch):
    steps = run.select(run.all_steps(), level="full", only=("smoke-tensorflow-mirrored",), skip=())
    missing: SmokeFailure = replace(HANG, kind="missing-package", missing="tensorflow", framework="tensorflow")
    monkeypatch.setattr(train, "run_smoke", lambda o: missing)
    (finding,) = run.verify(facts(), steps).findings
    assert finding.seen == "package tensorflow is not installed"
    assert finding.steps[-1].command == "python -m pip install 'tensorflow[and-cuda]'"


@pytest.mark.parametrize(
    ("words", "kind", "where"),
    [
        ("rank-hang", "hang", (1, "backward", 3)),
        ("rank-hang:rank=0,step=7", "hang", (0, "backward", 7)),
        ("rank-dies", "die", (1, "allreduce", 3)),
        ("allreduce-bitflip:step=2", "flip-bit", (1, "forward", 2)),
        ("slow-rank:rank=0,factor=3", "slow", (0, "forward", None)),
    ],
)
def test_a_fault_of_the_simulated_machine_reaches_the_ranks(monkeypatch, words, kind, where):
    directory = simulator.activate("p100-pcie-x2", [words])
    monkeypatch.setenv("GPUCHECK_SIMULATOR", str(directory))

    fault = train.with_fault(SmokeOptions()).fault

    assert fault is not None
    assert (fault.kind, (fault.rank, fault.phase, fault.step)) == (kind, where)
    assert fault.factor == (3 if "factor" in words else 2)


@pytest.mark.parametrize("words", ["rank-hang:rank=2", "rank-dies:step=0", "slow-rank:factor=1", "rank-hang:step=11"])
def test_a_training_fault_that_cannot_be_is_refused(monkeypatch, words):
    with pytest.raises(ValueError, match=words.partition(":")[0]):
        simulator.activate("p100-pcie-x2", [words])


def test_every_training_fault_has_its_form_in_the_ranks(tmp_path):
    names = [fault.name for fault in all_faults() if set(fault.parameters) & {"rank"}]
    assert set(names) == set(train.FAULTS)


def test_a_machine_without_faults_has_none(monkeypatch, tmp_path):
    (tmp_path / "surroundings.json").write_text(json.dumps({"shm_bytes": 1}))
    monkeypatch.setenv("GPUCHECK_SIMULATOR", str(tmp_path))
    assert train.with_fault(SmokeOptions()) == SmokeOptions()
