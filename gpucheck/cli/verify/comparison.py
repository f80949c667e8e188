"""verify --expect and --baseline: both files are read and validated before anything is measured."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpucheck.cli._shared.common import Problem
from gpucheck.foreign import read_bytes
from gpucheck.processes.trust import distrust

if TYPE_CHECKING:
    from gpucheck.model import Finding, Report
    from gpucheck.model.facts import Source

    Comparison = Callable[[Report], Iterable[Finding]]

HOST_S = 10.0


def comparisons(expect: Path | None, baseline: Path | None, source: "Source") -> "tuple[Comparison, ...]":
    """Return what the report of this host is compared with. Raises Problem."""
    found: list[Comparison] = []
    if expect is not None:
        found.append(_expectations(expect))
    if baseline is not None:
        found.append(_baseline(baseline, source))
    return tuple(found)


def _expectations(path: Path) -> "Comparison":
    from gpucheck import comparison
    from gpucheck.knowledge.strict import InputProblem

    content = read_bytes(path, comparison.MAX_BYTES, "Give another file with --expect")
    try:
        expected = comparison.read(content, str(path))
    except InputProblem as problem:
        words = problem.inside(str(path))
        raise Problem(words if words.endswith(("?", ".")) else f"{words}.") from None
    return lambda report: comparison.evaluate(report, expected)


def _baseline(path: Path, source: "Source") -> "Comparison":
    from gpucheck import comparison
    from gpucheck.processes.deadline import StuckError, in_time

    if os.geteuid() == 0 and (reason := _forged(path)) is not None:
        raise Problem(
            f"{path}: not read: {reason}, so another user may have written it. Keep the baseline where only root "
            f"writes: install -D -m 600 {path.name} /var/lib/gpucheck/{path.name}"
        )
    before = read_report(path)
    try:
        name = in_time("host name", lambda: source.read("system").system.hostname, HOST_S)
    except StuckError:
        name = before.host  # the report names the read that hangs
    reason = comparison.not_comparable(before, name, simulated=source.read("simulation").simulation is not None)
    if reason is not None:
        raise Problem(
            f"{path}: {reason}: --baseline compares a host with itself. Give a complete earlier report of it (gpucheck "
            "verify --format json -o FILE); many hosts are compared by gpucheck fleet report."
        )
    return lambda report: comparison.compare(before, report)


def _forged(path: Path) -> str | None:
    """Return why root does not believe this file, None if it does. The user who called sudo is believed."""
    caller = os.environ.get("SUDO_UID", "")
    with suppress(OSError):  # the reader reports what is missing; a pipe has no place
        return distrust(path, own=False, also=int(caller) if caller.isascii() and caller.isdigit() else None)
    return None


def read_report(path: Path) -> "Report":
    """The one host report in a file. Raises Problem."""
    from gpucheck.fleet.decode import MAX_BYTES
    from gpucheck.fleet.document import UNREADABLE
    from gpucheck.fleet.read import read_file
    from gpucheck.model import Report

    advice = "Give the JSON report of one host with --baseline: gpucheck verify --format json -o FILE"
    rows = read_file(path)
    if len(rows) != 1:
        raise Problem(f"{path}: contains {len(rows)} hosts. {advice}.")
    if rows[0].digest is None:
        seen = rows[0].problems[0].seen if rows[0].problems else "not a host report"
        reason = str(seen).removeprefix(f"{path.name}: ")
        raise Problem(f"{path}: {reason}. {advice}.")
    content = read_bytes(path, MAX_BYTES, advice)
    try:
        return msgspec.json.decode(content, type=Report)
    except UNREADABLE as error:  # of gpucheck compute, or broken where no fleet looks
        raise Problem(f"{path}: not a report of gpucheck verify: {error}. {advice}.") from error
