"""Workers side by side. One that dies or hangs is a failure of the input that it had, and another takes its place."""

import os
import signal
import time
from contextlib import suppress
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import NamedTuple

from tests.fuzz import product
from tests.fuzz.cases import as_they_are, made
from tests.fuzz.oracles import ROOT
from tests.fuzz.outcome import Failure
from tests.fuzz.worker import RESTART, Plan, Shared, work

HANGS_CPU_S, HANGS_S = 15.0, 90.0
"""Without a new case: bounded time ends in the worker itself, so this is C code, or a wait for something."""
TICKS = os.sysconf("SC_CLK_TCK")


class Found(NamedTuple):
    """A failure, the case that showed it, and the shortest input."""

    failure: Failure
    case: int
    data: bytes


class Result(NamedTuple):
    """inputs, seconds: by target. found: distinct failures."""

    inputs: dict[str, int]
    seconds: dict[str, float]
    found: list[Found]


class _Job:
    """One worker after the other on the same share of the cases."""

    def __init__(self, plan: Plan, number: int, ends: float) -> None:
        self.plan, self.ends = plan, ends
        context = get_context("fork")
        raw = context.RawArray
        self.shared = Shared(raw("q", [number] * len(plan.targets)), raw("q", len(plan.targets)), raw("q", [0, -1]))
        self.start()

    def start(self) -> None:
        context = get_context("fork")
        self.reports, sending = context.Pipe(duplex=False)
        self.process: ForkProcess = context.Process(target=work, args=(self.plan, self.shared, sending, self.ends))
        self.process.start()
        sending.close()
        self.seen, self.since, self.spent = -2, time.monotonic(), 0.0

    def hangs(self) -> bool:
        """Whether the same case has been running for too long."""
        current = sum(self.shared.next)
        if current != self.seen:
            self.seen, self.since, self.spent = current, time.monotonic(), self._cpu_s()
        return time.monotonic() - self.since > HANGS_S or self._cpu_s() - self.spent > HANGS_CPU_S

    def _cpu_s(self) -> float:
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            return 0.0
        return (int(fields[11]) + int(fields[12])) / TICKS

    def lost(self, kind: str) -> Found:
        """The failure of a worker that is dead."""
        index, case = self.shared.current
        target = self.plan.targets[index]
        return Found(Failure(target.name, kind, self._where()), case, made(target, self.plan.seed, case))

    def _where(self) -> str:
        """The innermost line of the product that the dead worker's last words name."""
        words = self.plan.output / f"crash-{self.process.pid}.txt"
        text = words.read_text(errors="replace") if words.exists() else ""
        words.unlink(missing_ok=True)
        _, _, current = text.rpartition("Current thread")
        lines = [line.strip() for line in current.splitlines() if f'File "{ROOT}/' in line]
        ours = next((line for line in lines if "/gpucheck/" in line or "/playbooks/" in line), "")
        place, _, function = ours.partition(", line ")
        path = place.removeprefix('File "').removesuffix('"').removeprefix(f"{ROOT}/")
        return f"{path} {function.rpartition(' ')[2]}".strip()


def run(plan: Plan) -> Result:
    """Fuzz until the plan is done."""
    plan.output.mkdir(parents=True, exist_ok=True)
    os.environ["GPUCHECK_FUZZ_RUN"] = str(os.getpid())
    for target in plan.targets:  # all seeds are made here, once
        made(target, plan.seed, len(as_they_are(target)))
    ends = time.monotonic() + plan.seconds
    found: dict[tuple[str, str, str], Found] = {}
    jobs = [_Job(plan, number, ends) for number in range(plan.jobs)]
    running = list(jobs)
    try:
        while running:
            connection.wait([waited for job in running for waited in (job.reports, job.process.sentinel)], timeout=1)
            running = [job for job in running if _goes_on(job, found)]
    finally:
        for job in jobs:
            job.process.kill()
            job.process.join()
        product.remove_scratch()
    names = [target.name for target in plan.targets]
    done = [sum((job.shared.next[i] - n) // plan.jobs for n, job in enumerate(jobs)) for i in range(len(names))]
    spent = [sum(job.shared.spent[i] for job in jobs) / 1e9 for i in range(len(names))]
    return Result(dict(zip(names, done, strict=True)), dict(zip(names, spent, strict=True)), list(found.values()))


def _goes_on(job: _Job, found: dict[tuple[str, str, str], Found]) -> bool:
    """Take a job's reports; start it again if its worker died before its end."""
    _receive(job.reports, found)
    if job.process.exitcode is None:
        if job.hangs():
            os.kill(job.process.pid or 0, signal.SIGABRT)
            job.process.join()
            _keep(job.lost("no end"), found)
            job.start()
        return True
    _receive(job.reports, found)
    status = job.process.exitcode
    if status == 0:
        return False
    if status != RESTART:
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        _keep(job.lost(f"the process ended: {how}"), found)
    job.start()
    return True


def _receive(reports: Connection, found: dict[tuple[str, str, str], Found]) -> None:
    with suppress(EOFError):  # its worker is dead
        while reports.poll():
            _keep(Found(*reports.recv()), found)


def _keep(one: Found, found: dict[tuple[str, str, str], Found]) -> None:
    """The shortest input of each failure."""
    before = found.get(one.failure.key)
    if before is None or len(one.data) < len(before.data):
        found[one.failure.key] = one


def folder() -> Path:
    """Where failing inputs go."""
    return ROOT / "build" / "fuzz"
