"""The fault matrix: every fault on several machines is found, named and placed; no healthy machine raises a voice.

The expectations are data/fault_matrix.yml. The two figures stand at the end of the test run.
``make test`` has a sample, ``make test-more`` everything: its figures are those of README.
"""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from msgspec import Struct
from msgspec.structs import fields, replace

from gpucheck import comparison, imports, simulator
from gpucheck.diagnose import diagnose
from gpucheck.diagnose.document import read
from gpucheck.host import LiveSource, Place
from gpucheck.host.recording import Recording, recording
from gpucheck.knowledge import root_causes
from gpucheck.model import Finding, NvmlGap, NvmlReading, Report, Verdict, follows
from gpucheck.render.words import observed
from gpucheck.run import verification as run
from gpucheck.run.steps import train
from gpucheck.simulator.faults import all_faults
from gpucheck.train.spec import SmokeOptions
from tests.conftest import Figures
from tests.diagnose import cases
from tests.fault_rules import LOUD, built, judge, no_judgement, subjects
from tests.imports import corpus
from tests.shared import sampled

ROWS: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "data" / "fault_matrix.yml").read_text(encoding="utf-8")
)
PROFILES = sorted(path.stem for path in (Path(simulator.__file__).parent / "profiles").glob("*.yml"))
QUICK = run.select(run.all_steps(), level="quick", only=(), skip=())
MEASURED = run.select(run.all_steps(), level="standard", only=("p2p",), skip=("quick",))
NETWORK = run.select(run.all_steps(), level="full", only=("nic-bandwidth",), skip=("quick",))
COMPUTED = run.select(run.all_steps(), level="standard", only=("compute",), skip=("quick",))
pytestmark = [pytest.mark.slow, pytest.mark.figures]

# make test has every fault on one machine, another one for the next fault; make test-more has all.
CELLS = [
    pytest.param(
        row,
        name,
        id=f"{row['fault']}-{name}",
        marks=() if place == number % len(row["profiles"]) else (pytest.mark.more,),
    )
    for number, row in enumerate(ROWS)
    for place, name in enumerate(row["profiles"])
]


def is_healthy(row: dict[str, Any]) -> bool:
    """A row of something that is no trouble: to warn of it would be a false alarm."""
    return row.get("verdict") == "pass"


def of_kind(kind, *, healthy=False):
    return [
        cell for cell in CELLS if cell.values[0].get("steps", "quick") == kind and is_healthy(cell.values[0]) == healthy
    ]


def fourth(number, _):
    """Each fourth is in make test, all are in make test-more."""
    return number % 4 == 0


def figure(row: dict[str, Any], figures: Figures) -> AbstractContextManager[None]:
    """What a cell of this row counts as."""
    return figures.healthy() if is_healthy(row) else figures.fault()


@pytest.fixture(scope="module")
def library(cache: Path) -> Iterator[Path]:
    """One NVML library for all machines: it reads whichever the environment names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setenv("GPUCHECK_SIMULATOR", "")
        yield simulator.activate("p100-pcie-x2") / "lib"


@pytest.fixture
def machine(library, tmp_path, monkeypatch):
    """Put a machine with faults under this process, until the test ends; those without are shared by all tests."""
    directory = tmp_path / "machine"
    monkeypatch.setenv("GPUCHECK_SIMULATOR", "")

    def machine(name, *faults):
        if not faults:
            return simulator.activate(name)
        profile = simulator.load(name)
        recipe = simulator.Recipe(profile=profile, driver=profile.driver.state(), faults=faults, software=True)
        made = simulator.write_machine(recipe, directory)
        if made.release is None:
            (directory / "lib").symlink_to(library)
        else:
            simulator.build_library(directory / "lib", profile.driver.version, made.release)
            simulator.build_cuda_library(directory / "lib", profile.driver.version)
        monkeypatch.setenv("GPUCHECK_SIMULATOR", str(directory))
        return directory

    yield machine
    shutil.rmtree(directory, ignore_errors=True)


# No finding shows a word of Python but those of these checks. To be emptied: a name may only be taken out.
PYTHON = re.compile(r"(?<![\w.'\"-])(None|True|False)(?![\w'\"-])")
PRINT_PYTHON = {
    *("container-runtime", "cpu-governor", "driver", "fabric", "iommu", "memory-errors", "mig", "module-flavour"),
    "next-boot",
}


EXPLAINED = {name for step in run.all_steps() for name in (step.name, *step.also)}


def look(directory: Path, steps: tuple[run.RunStep, ...], *, child: bool = False) -> tuple[Finding, ...]:
    host = LiveSource(Place(isolated=child, deadline_s=2.0, machine=directory))
    report = run.verify(host, steps)
    findings = report.findings
    assert {finding.check for finding in findings} <= EXPLAINED, "gpucheck explain knows every name"
    for finding in (finding for finding in findings if finding.check not in PRINT_PYTHON):
        assert not PYTHON.search(" ".join((observed(finding), finding.why, finding.fix, *finding.evidence))), finding
    assert report.counts["warn"] + report.counts["fail"] == sum(f.verdict in LOUD and not follows(f) for f in findings)
    return findings


# NVLSM manages the switches of HGX B200 and B300 alone, and two machines have NVLink-C2C.
FEWER = {"nvlsm-missing": 2, "c2c-link": 2, "c2c-slow": 2, "nic-flap": 1}


def test_every_fault_has_its_row_on_at_least_three_machines():
    tried: dict[str, set[str]] = {fault.name: set() for fault in all_faults()}
    for row in ROWS:
        tried[row["fault"].partition(":")[0]] |= set(row["profiles"])

    assert not [name for name, profiles in tried.items() if len(profiles) < FEWER.get(name, 3)]
    assert {name for row in ROWS for name in row["profiles"]} <= set(PROFILES)


STEPS: dict[str, tuple[run.RunStep, ...]] = {
    "quick": (),
    "measured": MEASURED,
    "computed": COMPUTED,
    "network": NETWORK,
}


@pytest.mark.parametrize(
    ("row", "name"), [cell for kind in STEPS for healthy in (False, True) for cell in of_kind(kind, healthy=healthy)]
)
def test_a_fault_is_found_by_the_right_check_and_by_no_other(row, name, machine, figures: Figures):
    """Also where copies, work or traffic alone show it: what quick checks found in order is not named as the cause."""
    more = STEPS[row.get("steps", "quick")]
    findings = look(machine(name, row["fault"]), (*QUICK, *more), child=row.get("ask") == "child")
    with figure(row, figures):
        judge(row, name, findings)


# Where a quick check names the card, the number points to it.
READ = [row for row in ROWS if row["fault"] in ("nic-rate:nic=3", "nic-down:nic=5")]


@pytest.mark.parametrize("row", READ, ids=lambda row: row["fault"])
def test_what_traffic_shows_of_a_fault_that_was_read_points_to_it(row, machine):
    findings = look(machine(row["profiles"][0], row["fault"]), (*QUICK, *NETWORK))
    judge(row, row["profiles"][0], findings)


# One machine a fault, the smallest: copies and work on eight GPUs take long.
STANDARD = [
    (row, min(row["profiles"], key=lambda name: len(built(name).gpus)))
    for row in ROWS
    if row.get("steps", "quick") == "quick" and row["verdict"] in ("warn", "fail") and "ask" not in row
]


def named(value: Any) -> str:
    """The ID of a parameter: a row's fault, or a profile."""
    return str(value if isinstance(value, str) else value["fault"])


@pytest.mark.parametrize(("row", "name"), sampled(STANDARD, lambda number, _: number % 12 == 0), ids=named)
def test_a_fault_is_one_finding_at_the_standard_level_too(row, name, machine):
    """What copies and work show of it points to the check that read it."""
    findings = look(machine(name, row["fault"]), (*QUICK, *MEASURED, *COMPUTED))
    stopped = {"compute", "p2p", "p2p-copies", "p2p-bandwidth", "p2p-integrity", *row.get("unknown", ())}
    judge({**row, "unknown": stopped}, name, findings, "standard")


# Faults that leave the driver and every GPU in service: nothing hides the other of a pair. About one GPU a check states
# the worst.
SEEN = ("driver", "inventory", "module-flavour", "next-boot")
PAIRS = [
    (a, b, name)
    for name in ("p100-pcie-x2", "hgx-h100-x8")
    for a, b in Random(name).sample(
        [
            (a, b)
            for a, b in combinations(ROWS, 2)
            if all("steps" not in row and name in row["profiles"] for row in (a, b))
            and all(row["verdict"] in ("warn", "fail") and row["check"] not in SEEN for row in (a, b))
            and a["fault"].partition(":")[0] != b["fault"].partition(":")[0]
            and (a["check"], a["subject"]) != (b["check"], b["subject"])
        ],
        15,
    )
]


@pytest.mark.parametrize(("a", "b", "name"), sampled(PAIRS, fourth), ids=named)
def test_of_two_faults_none_is_lost(a, b, name, machine):
    """Each leads, unless the table says that it follows from the other or both have one cause at one place."""
    findings = look(machine(name, a["fault"], b["fault"]), QUICK)
    for row, other in ((a, b), (b, a)):
        may_follow = row["cause"] in (other["cause"], *root_causes().explains.get(other["cause"], ()))
        found = {(f.subject, f.cause) for f in findings if f.verdict in LOUD and (may_follow or not follows(f))}
        wanted = {(subject, row["cause"]) for subject in subjects(row["subject"], built(name))}
        assert wanted <= found, [(f.check, f.subject, f.cause, f.because_of) for f in findings if f.verdict in LOUD]


def test_a_lost_gpu_and_a_narrow_link_of_another_are_two_findings(machine):
    findings = look(machine("hgx-h100-x8", "pcie-width:gpu=1,width=8", "xid:gpu=3,code=79"), QUICK)
    leads = {(f.check, f.cause) for f in findings if f.verdict in LOUD and not follows(f)}

    assert leads == {("pcie-link", "pcie-width-reduced"), ("kernel-log", "gpu-lost")}


# One machine a fault is enough here: what the checks make of the others is judged above.
FIRST = [
    (row, row["profiles"][0])
    for row in ROWS
    if row.get("steps", "quick") == "quick" and row["verdict"] not in ("pass", "unknown")
]


@pytest.fixture(scope="module")
def healthy() -> dict[tuple[str, bool], Report]:
    """Reports of machines without a fault, by profile and by whether a child asks NVML: each is made once."""
    return {}


@pytest.mark.parametrize(("row", "name"), sampled(FIRST, fourth), ids=named)
def test_a_fault_is_worse_than_the_healthy_machines_own_report(row, name, machine, healthy):
    """And the healthy machine is not worse than itself."""
    child = row.get("ask") == "child"

    def report(*faults: str) -> Report:
        return run.verify(LiveSource(Place(isolated=child, deadline_s=2.0, machine=machine(name, *faults))), QUICK)

    if (name, child) not in healthy:
        before, same = report(), report()
        assert not [f for f in comparison.compare(before, same) if f.verdict is not Verdict.PASS]
        healthy[name, child] = before
    worse = [f for f in comparison.compare(healthy[name, child], report(row["fault"])) if f.verdict in LOUD]
    assert {f.cause for f in worse} & {row["cause"], "regression"}, worse


# Without faults that other GPUs have as well.
SHARED = ("arch-missing", "gpu-hidden")
OF_ONE = [
    (row, row["profiles"][0])
    for row in ROWS
    if row.get("steps", "quick") == "quick"
    and row.get("ask") != "child"
    and row.get("subject", "").startswith(("gpu:", "port:"))
    and row["fault"].partition(":")[0] not in SHARED
]


@pytest.mark.parametrize(("row", "name"), sampled(OF_ONE, fourth), ids=named)
def test_a_fault_of_a_hidden_gpu_is_not_this_sessions(row, name, machine):
    """The bus and the kernel log still show it: that is reported as what it is, a fault of the node."""
    number = row["subject"].partition(":")[2]
    hidden = machine(name, row["fault"], f"gpu-hidden:gpu={number}")
    report = run.verify(LiveSource(Place(isolated=False, deadline_s=2.0, machine=hidden)), QUICK)

    no_judgement(report.findings)
    assert not [(f.check, f.subject, f.cause, f.seen) for f in report.findings if f.verdict in LOUD]
    assert len(report.partial.hidden) == 1
    (share,) = [f for f in report.findings if f.check == "inventory" and f.verdict is Verdict.SKIP]
    assert share.code == "session.some-gpus-hidden"


@pytest.mark.parametrize(("row", "name"), of_kind("trained"))
def test_a_fault_of_training_reaches_the_ranks_and_alarms_no_check(row, name, machine):
    """What the ranks make of it is held by tests/train, with real training; it is not counted here."""
    findings = look(machine(name, row["fault"]), QUICK)
    no_judgement(findings)
    fault = train.with_fault(SmokeOptions()).fault

    assert fault is not None
    assert fault.kind == row["in_ranks"]
    assert not [(f.check, f.subject, f.cause, f.seen) for f in findings if f.verdict in LOUD]


# The only sign of the fault; a host without a kernel in /lib/modules boots an image, which the check says.
# Of a network card that is missing or moved, what a known system has, where no switch is above its GPUs.
ONLY_SIGN = {
    "arch-missing": "texts",
    "dkms-not-built": "kernels",
    "headers-missing": "kernels dkms",
    "nic-missing": "texts",
    "nic-wrong-rail": "texts",
}
ANSWERS = ("texts", "folders", "services", "packages")
LOST = {"packages": None, "libraries": None, "kernels": (), "dkms": (), "device_files": (), "secure_boot": None}
# Where None is a value that was not reported; of a recording, so many of them are taken out, one by one.
# Of these fields, None is what a GPU without that mode reports.
NO_MODE = ("mig_pending", "licensed")
REPORTED, DRAWN = ("nvml", "pci", "rdma", "system", "driver", "limits"), 30


def reported(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every optional field that has a value."""
    if isinstance(value, tuple):
        for place, one in enumerate(value):
            yield from reported(one, (*path, place))
    elif isinstance(value, Struct):
        for field in fields(type(value)):
            if (inner := getattr(value, field.name)) is not None:
                yield from [(*path, field.name)] if field.default is None else []
                yield from reported(inner, (*path, field.name))


def without(value: Any, path: tuple[Any, ...]) -> Any:
    first, *rest = path
    if isinstance(value, tuple):
        return (*value[:first], without(value[first], (*rest,)), *value[first + 1 :])
    return replace(value, **{first: without(getattr(value, first), (*rest,)) if rest else None})


def refused(recorded: Recording, path: tuple[Any, ...]) -> Recording:
    """Without a value; of a GPU, NVML answers "not supported", as it does where a product has no such value."""
    less: Recording = without(recorded, path)
    if path[:2] != ("nvml", "gpus") or not isinstance(less.nvml, NvmlReading):
        return less
    gap = NvmlGap(call=path[-1], subject=f"gpu:{less.nvml.gpus[path[2]].pci_bus_id}", code=3, name="NotSupported")
    return replace(less, nvml=replace(less.nvml, gaps=(*less.nvml.gaps, gap)))


@pytest.mark.parametrize(("row", "name"), sampled(STANDARD, lambda number, _: number % 24 == 6), ids=named)
def test_a_fault_does_not_pass_if_the_host_does_not_answer_one_question(row, name, machine):
    """A value that NVML or sysfs does not report; a file, folder, service or package that cannot be read; a program
    that is missing.
    """
    host = LiveSource(Place(isolated=False, deadline_s=2.0, machine=machine(name, row["fault"])))
    run.verify(host, QUICK)
    recorded = recording(host.read(), version="1", now="2026-01-01T00:00:00+00:00")
    questions = [(kind, key) for kind in ANSWERS for key, value in (getattr(recorded, kind) or {}).items() if value]
    less = [{kind: {**getattr(recorded, kind), key: None}} for kind, key in questions]
    only_sign = ONLY_SIGN.get(row["fault"].partition(":")[0], "").split()

    every = (path for part in REPORTED for path in reported(getattr(recorded, part), (part,)))
    values = [path for path in every if path[-1] not in NO_MODE]
    for path in Random(row["fault"]).sample(values, min(len(values), DRAWN)):
        assert run.verify(refused(recorded, path), QUICK).verdict is not Verdict.PASS, path
    for change in (*less, *({kind: value} for kind, value in LOST.items())):
        verdict = run.verify(replace(recorded, **change), QUICK).verdict
        assert verdict is not Verdict.PASS or set(only_sign) & change.keys(), change


# GPUs that are cut into instances have no peers, which multi-GPU training needs: that is a warning, and no fault.
DIVIDED = "a100-mig-x8"
HEALTHY = [name for name in PROFILES if name != DIVIDED]


def test_a_machine_cut_into_instances_warns_of_that_and_of_nothing_else(machine):
    findings = look(machine(DIVIDED), QUICK)
    no_judgement(findings)

    assert {(f.check, f.cause, f.verdict) for f in findings if f.verdict in LOUD} == {
        ("mig", "mig-enabled", Verdict.WARN)
    }


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_machine_raises_no_voice(name, machine, figures: Figures):
    findings = look(machine(name), QUICK)
    with figures.healthy():
        assert not [(f.check, f.subject, f.cause, f.seen) for f in findings if f.verdict in LOUD]
        no_judgement(findings, may={f.check for f in findings} if name == "no-gpu" else set())


# Nothing copies inside a GPU cut into instances.
MEASURABLE = [name for name in PROFILES if name != "no-gpu"]
# For make test, one of a kind: in instances, on NVLink bridges, on a switch, on two sockets, without peer to peer, of
# several models.
KINDS = (DIVIDED, "a6000-x4-nvlink", "hgx-h200-x8", "mixed-x4", "p100-pcie-x2-sys", "rtx4090-x2")


@pytest.mark.parametrize("name", sampled(MEASURABLE, lambda _, name: name in KINDS))
@pytest.mark.parametrize("steps", [MEASURED, COMPUTED], ids=["measured", "computed"])
def test_a_healthy_machine_is_measured_without_a_complaint(steps, name, machine, figures: Figures):
    findings = look(machine(name), steps)
    with figures.healthy():
        assert not [(f.check, f.subject, f.cause, f.seen) for f in findings if f.verdict in LOUD]
        no_judgement(findings, may={"compute"} if (steps, name) == (COMPUTED, DIVIDED) else set())


REAL = sorted(name for name in cases.OLDEST if cases.healthy(name))


@pytest.mark.parametrize("name", REAL)
def test_a_real_machine_that_its_owner_calls_healthy_raises_no_voice(name, figures: Figures):
    findings = diagnose(read(json.dumps(cases.case(name)["observations"])))
    with figures.healthy():
        assert {finding.verdict for finding in findings} == {Verdict.PASS}


WHOLE = [case for case in corpus.CASES if case["raw_complete"] and not case.get("negative")]


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case["id"])
def test_a_whole_paste_of_a_real_machine_raises_no_voice(case, figures: Figures):
    """What it shows is how the machine is wired, and no wiring is a fault by itself."""
    topology = imports.read(corpus.raw(case))
    with figures.healthy():
        assert len(topology.gpus) == case["gpus"]["count"]
        assert not [(f.subject, f.cause, f.seen) for f in topology.findings if f.verdict in LOUD]


def test_the_readme_shows_the_figures():
    """As they come out when every test here passes."""
    faults = sum(len(of_kind(kind)) for kind in STEPS)
    no_trouble = sum(len(of_kind(kind, healthy=True)) for kind in STEPS)
    healthy = len(HEALTHY) + 2 * len(MEASURABLE) + len(REAL) + len(WHOLE) + no_trouble
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")

    figures = f"{faults} of {faults} faults caught, 0 false alarms in {healthy} healthy runs"
    assert figures in " ".join(readme.split())
