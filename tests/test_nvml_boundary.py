"""Whatever NVML answers, the report stays true: each call that gpucheck makes, spoilt in each way, machine by machine.

No traceback; no wedged driver without a hang or a signal; nothing certain without its evidence; no PASS of a check
whose question was refused; every other check's answer as it was. ``boundary`` has the rules. A sample is in make check,
every case in make test-more.
"""

import functools
from collections import defaultdict
from itertools import groupby, product
from operator import attrgetter
from pathlib import Path

import pytest

from gpucheck import simulator
from gpucheck.host import LiveSource, Place
from gpucheck.model import Finding, Verdict
from gpucheck.simulator.nvml.library import base_name, exports
from tests.boundary import (
    DEPRECATED,
    IDENTITY,
    LOUD,
    MUST,
    NOT_IN_LIBRARY,
    NOT_SUPPORTED,
    RESTS_ON,
    START,
    BrokenError,
    Case,
    Machine,
    all_cases,
    broken_rules,
    quick_findings,
)
from tests.conftest import Figures
from tests.shared import sampled

# Machine -> one case in so many, for the sample. Together they have every call: NVLink, a fabric, a GPU in use.
SAMPLE = {"p100-pcie-x2": 37, "rtx3090-x2-nvlink": 59, "gb200-x4": 127}
WHOLE = {
    "p100-pcie-x2": 1,
    "rtx3090-x2-nvlink": 1,
    "t4-vm-x1": 1,
    "h100-nvl-x2": 1,
    # Larger ones take longer for a pass and have few other calls.
    "a100-sxm-x4": 3,
    "gb200-x4": 3,
    "dgx1-v100": 16,
    "hgx-a100-x8": 16,
    "a100-mig-x8": 16,
    "hgx-h100-x8": 16,
}
PARTS = 4


@pytest.fixture(scope="module")
def library(cache: Path):
    """One NVML library for all machines; the environment is put back at the end."""
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(cache))
    patch.setenv("GPUCHECK_SIMULATOR", "")
    yield simulator.activate("p100-pcie-x2") / "lib"
    patch.undo()


@pytest.fixture(scope="module")
def machine(library: Path, tmp_path_factory: pytest.TempPathFactory):
    """A machine by the name of its profile, made once."""
    return functools.cache(lambda name: Machine(name, tmp_path_factory.mktemp(name) / "machine", library))


def misjudged(machine: Machine, cases: list[Case], figures: Figures) -> list[str]:
    """Each rule that is broken, by which check, how often, and the first case of it."""
    found: defaultdict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in cases:
        try:
            rules = broken_rules(case, machine, machine.findings(*case.faults))
        except BrokenError as error:
            rules = {(error.check, f"traceback: {error}")}
        figures.spoilt(wrong=bool(rules))
        for rule in rules:
            found[rule].append(case)
    return [f"{check}: {rule}: {len(met)} cases, as {met[0]}" for (check, rule), met in sorted(found.items())]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_spoilt_answers_leaves_the_report_true(name, machine, figures: Figures):
    machine = machine(name)
    cases = []
    for number, (_, group) in enumerate(groupby(all_cases(machine), key=attrgetter("call"))):
        own = list(group)
        cases += own[number % min(len(own), SAMPLE[name]) :: SAMPLE[name]]
    assert {case.call for case in cases} == set(machine.calls), "every call is spoilt in some way"

    wrong = misjudged(machine, cases, figures)
    assert not wrong, "\n".join(wrong)


@pytest.mark.more
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", WHOLE)
def test_every_spoilt_answer_leaves_the_report_true(name, part, machine, figures: Figures):
    machine = machine(name)
    cases = list(all_cases(machine))[part * WHOLE[name] :: PARTS * WHOLE[name]]

    wrong = misjudged(machine, cases, figures)
    assert not wrong, "\n".join(wrong)


def test_the_rules_name_calls_that_are_made(machine):
    """What a check's PASS is said to rest on is asked for on one of the machines."""
    made = {call for name in SAMPLE for call in machine(name).calls}

    assert {call for calls in RESTS_ON.values() for call in calls} - made == set()


# ---- with the child: what ends it, what delays it, what it lacks ----


def look(machine: Machine, fault: str, deadline_s: float) -> tuple[Finding, ...]:
    """What the checks say, with NVML asked by a child as everywhere."""
    host = LiveSource(Place(isolated=True, deadline_s=deadline_s, machine=machine.folder))
    with machine.spoilt(fault):
        return quick_findings(host)


def verdicts(findings: tuple[Finding, ...]) -> set[tuple[str, str, str, str | None]]:
    return {(f.check, f.subject, f.verdict.value, f.cause) for f in findings}


HOW = ("nvml-hang", "nvml-crash")


def ended_by(machine: Machine, fault: str, call: str) -> None:
    """A hang or a signal is the driver's: one FAIL that names the call, and no PASS for what was never read."""
    findings = look(machine, f"{fault}:call={call}", 1.5)
    wedged = [f for f in findings if f.cause == "wedged-driver"]
    if call == "nvmlShutdown" and not wedged:
        return  # everything was read before
    assert [(f.check, f.verdict) for f in wedged] == [("driver", Verdict.FAIL)]
    assert call in f"{wedged[0].seen} {wedged[0].why} {wedged[0].evidence}"
    others = [f for f in findings if f.check in RESTS_ON and f.check != "driver"]
    assert not [f.check for f in others if f.verdict is not Verdict.UNKNOWN]


@pytest.mark.parametrize("fault", HOW)
def test_a_hang_or_a_crash_names_the_call(fault, machine):
    machine = machine("rtx3090-x2-nvlink")
    for call in ("nvmlInit", "nvmlDeviceGetP2PStatus"):
        ended_by(machine, fault, call)


@pytest.mark.more
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("fault", HOW)
def test_every_hang_and_every_crash_names_the_call(fault, part, machine):
    machine = machine("rtx3090-x2-nvlink")
    library = exports(machine.profile.driver.state().loaded_version)
    there = {name for one in library for name in (one.name, base_name(one.name))}
    for call in [call for call in machine.made if call in there][part::8]:
        ended_by(machine, fault, call)


@pytest.mark.parametrize(("seconds", "deadline_s"), [("0.1", 20.0), ("1", 1.5)])
def test_slow_is_neither_wedged_nor_anything_else(seconds, deadline_s, machine):
    """Within the deadline nothing changes; past it nothing is accused."""
    machine = machine("p100-pcie-x2")
    findings = look(machine, f"nvml-slow:seconds={seconds}", deadline_s)

    assert not [(f.check, f.cause, f.seen) for f in findings if f.verdict in LOUD]
    if deadline_s > 2 * float(seconds):
        assert verdicts(findings) == verdicts(machine.healthy)


# ---- what NVML does not offer: not supported, not in this library, deprecated ----

ABSENT = (NOT_SUPPORTED, NOT_IN_LIBRARY, DEPRECATED)
BOARDS = [name for name in simulator.profile_names() if name != "no-gpu"]


def optional(machine: Machine) -> list[str]:
    return [call for call in machine.calls if call not in START | IDENTITY | MUST]


def false_words(machine: Machine, calls: set[str], code: int, findings: tuple[Finding, ...]) -> list[str]:
    """What is unknown or accused because these calls have no answer, and what passes all the same."""
    known = verdicts(machine.healthy)
    found = [
        f"{f.check} {f.verdict.value} {f.subject}: {f.seen} {f.why}"
        for f in findings
        if f.verdict in (*LOUD, Verdict.UNKNOWN) and (f.check, f.subject, f.verdict.value, f.cause) not in known
    ]
    # The fabric check has other evidence, which it states: P2P status and the service.
    blind = {check for check, needs in RESTS_ON.items() if needs & set(machine.made) <= calls and check != "fabric"}
    found += [f"{f.check} pass: {f.seen}" for f in findings if f.check in blind and f.verdict is Verdict.PASS]
    return [f"{', '.join(sorted(calls)[:2])} code {code}: {words}" for words in found]


@pytest.mark.parametrize(("name", "code"), sampled(product(BOARDS, ABSENT), lambda _, one: one[0] in SAMPLE))
def test_nothing_is_wrong_where_nvml_offers_little(name, code, machine):
    """Every optional call at once."""
    machine = machine(name)
    calls = optional(machine)
    findings = machine.findings(*(f"nvml-refuse:call={call},code={code}" for call in calls))

    assert false_words(machine, set(calls), code, findings) == []
