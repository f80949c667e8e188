"""PASS only where proven: what a level must show, what a site may exclude, and what the last line then says."""

import json

import click
import pytest
from msgspec.structs import replace

from gpucheck.checks.software.stack import PLAN
from gpucheck.cli.stack.common import as_json
from gpucheck.knowledge.codes import Subject
from gpucheck.measure.planning.selection import Unmeasurable
from gpucheck.model import Simulation, Verdict
from gpucheck.model.facts import Facts
from gpucheck.render.formats import to_json
from gpucheck.run import verification as run
from gpucheck.run.proof import not_required, planned_frameworks
from gpucheck.run.steps import train
from gpucheck.stack import StackSpec
from gpucheck.train import smoke, whole_gpus
from tests.fakes import facts
from tests.machines import LOADED, on_bus, p100, reading
from tests.render.views import report_text
from tests.stack.plan.test_plan import planned
from tests.train.outcomes import ON_CPU, ON_GPUS, ON_ONE_GPU

TWO, ONE = (p100(0), p100(1)), (p100(0),)


def test_a_plan_as_provisioning_writes_it_names_its_frameworks():
    """Its stack holds versions, lists and texts side by side."""
    text = as_json(planned("ubuntu-22.04", "p100-pcie-x2", StackSpec(torch="none", tensorflow="none")))

    assert planned_frameworks(facts(files={PLAN: text})) == frozenset()
    assert not_required(facts(files={PLAN: text}), "torch", gpus=2).text == "the plan of this host names no torch"
    with_torch = as_json(planned("ubuntu-22.04", "p100-pcie-x2"))
    assert planned_frameworks(facts(files={PLAN: with_torch})) == {"torch", "tensorflow"}


def plan(**stack: str) -> str:
    """A recorded plan whose stack names these frameworks."""
    chosen = {name: {"version": version} for name, version in stack.items()}
    return json.dumps({"schema": "gpucheck.plan/1", "components": {}, "stack": {"torch": None, **chosen}})


def host_with(gpus=TWO, **fields) -> Facts:
    return facts(nvml=reading(*gpus), pci=on_bus(*gpus), driver=LOADED, **fields)


def missing(*absent: str):
    """find_spec of an environment without these packages."""
    return lambda name: None if name in absent else object()


def verified(host, *names, level="standard", **outcome):
    steps = run.select(run.all_steps(), level=level, only=names, skip=())
    return run.verify(host, steps, **outcome)


def last_line(report) -> str:
    return click.unstyle(report_text(report)).splitlines()[-1]


@pytest.fixture
def without_torch(monkeypatch):
    monkeypatch.setattr(smoke, "find_spec", missing("torch"))


@pytest.mark.parametrize("gpus", [ONE, TWO])
@pytest.mark.usefixtures("without_torch")
def test_training_without_torch_on_a_host_with_gpus_is_unknown(gpus):
    report = verified(host_with(gpus), "smoke-ddp", "smoke-transfer")

    assert report.verdict is Verdict.UNKNOWN
    assert {f.check for f in report.findings} == {"smoke-ddp", "smoke-transfer"}
    for finding in report.findings:
        assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, None)
        assert finding.seen == "training on GPUs unknown: package torch is not installed"
        assert finding.code == "training.package-needed"
    assert report.not_proven == ("training, torch is not installed",)
    assert last_line(report).startswith("UNKNOWN (not proven: training, torch is not installed)  ")
    assert click.unstyle(report_text(report)).count("training on GPUs unknown") == 1, "one block for both steps"


@pytest.mark.usefixtures("without_torch")
def test_training_that_the_plan_of_the_host_does_not_name_is_a_skip():
    report = verified(host_with(files={PLAN: plan()}), "inventory", "smoke-ddp", "smoke-transfer")

    assert {f.verdict for f in report.findings if f.check.startswith("smoke")} == {Verdict.SKIP}
    assert report.verdict is Verdict.PASS
    assert report.not_proven == ("training, the plan of this host names no torch",)
    assert last_line(report).startswith("PASS (not proven: training, the plan of this host names no torch)  ")
    assert json.loads(to_json(report))["not_proven"] == ["training, the plan of this host names no torch"]


@pytest.mark.usefixtures("without_torch")
def test_training_without_a_gpu_is_a_skip():
    report = verified(facts(), "smoke-ddp")

    assert [(f.verdict, f.code) for f in report.findings] == [(Verdict.SKIP, "training.host-without-gpu")]
    assert report.not_proven == ("training, this host has no GPU",)


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("text", [plan(torch="2.9.1"), "{", '{"stack": []}', '{"stack": {"torch": 3}}'])
def test_a_plan_with_torch_or_an_unreadable_plan_requires_torch(text):
    assert verified(host_with(files={PLAN: text}), "smoke-ddp").verdict is Verdict.UNKNOWN


def test_planned_frameworks_of_a_host_without_a_plan_are_not_known():
    assert planned_frameworks(facts()) is None
    assert planned_frameworks(facts(files={PLAN: plan(tensorflow="2.20.0")})) == {"tensorflow"}


@pytest.mark.parametrize(
    ("files", "verdict", "not_proven"),
    [
        ({}, Verdict.SKIP, ()),
        ({PLAN: plan(torch="2.9.1")}, Verdict.SKIP, ()),
        (
            {PLAN: plan(torch="2.9.1", tensorflow="2.20.0")},
            Verdict.UNKNOWN,
            ("training with tensorflow, tensorflow is not installed",),
        ),
    ],
)
def test_tensorflow_is_required_at_level_full_if_the_plan_names_it(monkeypatch, files, verdict, not_proven):
    monkeypatch.setattr(smoke, "find_spec", missing("tensorflow", "cupy"))
    report = verified(host_with(files=files), "smoke-tensorflow-mirrored", "smoke-cupy-transfer", level="full")

    found = {finding.check: finding.verdict for finding in report.findings}
    assert found == {"smoke-tensorflow-mirrored": verdict, "smoke-cupy-transfer": Verdict.SKIP}
    assert report.not_proven == not_proven


@pytest.mark.parametrize(
    ("outcome", "gpus", "verdict", "not_proven"),
    [
        (ON_GPUS, TWO, Verdict.PASS, ()),
        (ON_CPU, TWO, Verdict.UNKNOWN, ("training across GPUs, torch 2.13.0+cpu is a build without CUDA",)),
        (ON_CPU, ONE, Verdict.UNKNOWN, ("training across GPUs, torch 2.13.0+cpu is a build without CUDA",)),
        (ON_ONE_GPU, ONE, Verdict.PASS, ()),
    ],
)
def test_a_run_is_a_pass_only_on_the_gpus_that_the_host_has(monkeypatch, outcome, gpus, verdict, not_proven):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(train, "run_smoke", lambda options: outcome)
    report = verified(host_with(gpus), "smoke-ddp")

    assert (report.verdict, report.not_proven) == (verdict, not_proven)
    verdicts = {finding.check: set() for finding in report.findings}
    for finding in report.findings:
        verdicts[finding.check].add(finding.verdict)
    assert verdicts["smoke-ddp"] == {Verdict.PASS}, "one name, one verdict"


def test_gpus_that_the_caller_hides_are_not_proven(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(train, "run_smoke", lambda options: ON_CPU)
    report = verified(host_with(TWO), "smoke-ddp")

    assert report.verdict is Verdict.PASS
    assert report.not_proven == ("training across GPUs, torch 2.13.0+cpu is a build without CUDA",)


def test_cpu_ranks_on_simulated_hardware_stay_a_pass(monkeypatch):
    monkeypatch.setattr(train, "run_smoke", lambda options: ON_CPU)
    report = verified(host_with(TWO, simulation=Simulation(profile="p100-pcie-x2")), "smoke-ddp")

    assert (report.verdict, report.not_proven) == (Verdict.PASS, ())
    assert last_line(report).endswith("SIMULATED")


def split_by_mig(gpu):
    return replace(gpu, health=replace(gpu.health, mig=True))


@pytest.mark.parametrize(
    ("gpus", "count"),
    [(TWO, 2), (ONE, 1), ((), 0), (tuple(map(split_by_mig, TWO)), 0), ((split_by_mig(p100(0)), p100(1)), 1)],
)
def test_gpus_split_by_mig_do_not_count_for_training_across_gpus(gpus, count):
    assert whole_gpus(facts(nvml=reading(*gpus), pci=on_bus(*gpus))) == count


def test_gpus_are_those_of_nvml_and_those_of_the_bus_without_it():
    """A container with one GPU sees all eight on the bus."""
    assert whole_gpus(facts(nvml=reading(*ONE), pci=on_bus(*TWO))) == 1
    assert whole_gpus(facts(pci=on_bus(*TWO))) == 2


@pytest.fixture
def nothing_copies(monkeypatch):
    def bandwidth(host, options):
        finding = Subject(check="p2p-copies").skips(
            "measure.package-missing", "no engine is installed", package="torch"
        )
        raise Unmeasurable(finding)

    monkeypatch.setattr("gpucheck.run.links.bandwidth", bandwidth)


@pytest.mark.usefixtures("nothing_copies")
@pytest.mark.parametrize(
    ("gpus", "files", "verdict", "not_proven"),
    [
        (TWO, {}, Verdict.UNKNOWN, ("copies between GPUs, no engine is installed",)),
        (TWO, {PLAN: plan()}, Verdict.UNKNOWN, ("copies between GPUs, no engine is installed",)),
        (ONE, {}, Verdict.SKIP, ()),
        (tuple(map(split_by_mig, TWO)), {}, Verdict.SKIP, ()),
    ],
)
def test_copies_that_could_not_be_made_between_two_gpus_are_unknown(gpus, files, verdict, not_proven):
    report = verified(host_with(gpus, files=files), "p2p")
    (finding,) = report.findings

    assert (finding.verdict, report.not_proven) == (verdict, not_proven)
    assert (finding.code, finding.values) == ("measure.package-missing", {"package": "torch"})
    if verdict is Verdict.UNKNOWN:
        assert finding.seen == "copies between GPUs unknown: no engine is installed"
        assert finding.steps[-1].command == "gpucheck verify --skip p2p"


@pytest.mark.parametrize(
    ("level", "only", "skip", "expected"),
    [
        ("standard", (), (), ()),
        ("standard", (), ("training",), ("training, excluded by --skip",)),
        ("standard", (), ("p2p", "smoke-ddp"), ("p2p, excluded by --skip", "smoke-ddp, excluded by --skip")),
        ("quick", (), ("training",), ()),
        ("standard", (), ("smoke-fsdp",), ()),
        ("full", (), ("smoke-fsdp",), ("smoke-fsdp, excluded by --skip",)),
        ("standard", ("nvlink",), (), ("everything except nvlink, excluded by --only",)),
        ("standard", ("nvlink",), ("training",), ("everything except nvlink, excluded by --only",)),
        (
            "standard",
            ("training",),
            ("smoke-ddp",),
            ("everything except training, excluded by --only", "smoke-ddp, excluded by --skip"),
        ),
    ],
)
def test_what_the_caller_excludes_from_a_level_is_not_proven(level, only, skip, expected):
    steps = run.all_steps()
    chosen = run.select(steps, level=level, only=only, skip=skip)

    assert run.left_out(run.select(steps, level=level, only=(), skip=()), chosen, only, skip) == expected
