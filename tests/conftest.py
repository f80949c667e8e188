"""What the whole test run shares: the figures of the fault matrix and of the NVML boundary, shown at its end."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

import pytest

from gpucheck import simulator
from gpucheck.knowledge import codes
from tests.shared import made_once

# A busy machine is slow, and that is no failure: what a search finds counts, not how long it took. The same tree gives
# the same result: inputs that no run has seen before are the business of make fuzz.
with suppress(ModuleNotFoundError):  # the tests on GPUs run where it is not installed
    from hypothesis import HealthCheck, settings

    settings.register_profile("gpucheck", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("gpucheck")

# Tables that a developer has updated are no part of what is tested.
os.environ["XDG_DATA_HOME"] = "/nonexistent"

MATRIX = "fault matrix"
# Each finding that a test makes is one that its check declares.
codes.on_finding = codes.declared


class Figures:
    """Faults injected and caught, healthy runs and false alarms; answers of NVML spoilt and misjudged."""

    def __init__(self) -> None:
        self.injected = self.caught = self.runs = self.alarms = self.answers = self.misjudged = 0

    @contextmanager
    def fault(self) -> Iterator[None]:
        """Around the judgement of one fault on one machine: caught when nothing is raised."""
        self.injected += 1
        yield
        self.caught += 1

    @contextmanager
    def healthy(self) -> Iterator[None]:
        """Around the judgement of one healthy run: a false alarm when something is raised."""
        self.runs += 1
        self.alarms += 1
        yield
        self.alarms -= 1

    def spoilt(self, *, wrong: bool) -> None:
        """Count an answer of NVML that was spoilt. wrong: the report broke a rule."""
        self.answers += 1
        self.misjudged += wrong

    def lines(self) -> Iterator[str]:
        """What was counted, a line each."""
        if self.injected or self.runs:
            yield (
                f"{MATRIX}: {self.caught} of {self.injected} faults caught, "
                f"{self.alarms} false alarms in {self.runs} healthy runs"
            )
        if self.answers:
            yield f"NVML boundary: {self.answers} answers spoilt, {self.misjudged} reports not true"


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """The figures of one test. They travel with its report, so that tests may run in several processes."""
    own = Figures()
    yield own
    request.node.user_properties.append((MATRIX, vars(own)))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache directory of the test run. All its processes share it, so that libraries are compiled once."""
    return made_once(tmp_path_factory, "cache", lambda folder: None)


@pytest.fixture(scope="module", autouse=True)
def _module_leaves_no_simulated_machine() -> Iterator[None]:
    """Nor a fixture of all tests of a module, which the next module must not meet."""
    yield from _as_before()


@pytest.fixture(autouse=True)
def _leaves_no_simulated_machine() -> Iterator[None]:
    """A command with --simulate that runs in this process sets it: the next test must not meet that machine."""
    yield from _as_before()


def _as_before() -> Iterator[None]:
    before = os.environ.get("GPUCHECK_SIMULATOR", "")
    yield
    os.environ["GPUCHECK_SIMULATOR"] = before


@pytest.fixture
def activate(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Callable[..., Path]:
    """simulator.activate with the cache of the test run; the environment is restored afterwards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("GPUCHECK_SIMULATOR", "")
    return simulator.activate


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line each, where they were counted."""
    total = Figures()
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if getattr(report, "when", None) == "teardown":
            for figure, count in dict(report.user_properties).get(MATRIX, {}).items():
                setattr(total, figure, getattr(total, figure) + count)
    for line in total.lines():
        terminalreporter.write_line(line)
