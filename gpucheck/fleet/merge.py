"""Merge host reports. What cannot be read, is missing or stands twice is a row of its own, never left out."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from gpucheck.model import Finding, FleetReport, FleetRow, Report, Verdict, worst
from gpucheck.model.report import SCHEMA as REPORT_SCHEMA

# A report of an 8-GPU host is about 60 kB; anything near this is not one.
MAX_BYTES = 16 * 1024 * 1024


def read_reports(paths: Iterable[Path]) -> Iterator[FleetRow]:
    """A row for each report file. A file that is no report becomes an UNKNOWN row that says why."""
    for path in paths:
        try:
            if path.stat().st_size > MAX_BYTES:
                yield _unreadable(path, f"larger than {MAX_BYTES // 2**20} MiB, so it is no host report")
                continue
            report = msgspec.json.decode(path.read_bytes(), type=Report)
        except OSError as error:
            yield _unreadable(path, error.strerror or str(error))
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            yield _unreadable(path, f"not a host report: {error}")
        else:
            if report.schema != REPORT_SCHEMA:
                yield _unreadable(path, f"schema {report.schema!r}, this gpucheck reads {REPORT_SCHEMA!r}")
            else:
                yield row(report)


def merge(rows: Iterable[FleetRow], expected: Iterable[str] = ()) -> FleetReport:
    """Sort rows by host, add an UNKNOWN row for every expected host without one, and mark hosts that stand twice."""
    rows = list(rows)
    seen = [r.host for r in rows]
    rows += [_missing(host) for host in dict.fromkeys(expected) if host not in seen]
    rows = [_twice(r) if seen.count(r.host) > 1 else r for r in rows]
    verdicts = [r.verdict for r in rows]
    return FleetReport(
        verdict=worst(verdicts),
        simulated=any(r.simulated for r in rows),
        hosts=tuple(sorted(rows, key=lambda r: (r.host, r.started or ""))),
        counts={v.value: verdicts.count(v) for v in Verdict if v is not Verdict.SKIP},
    )


def row(report: Report) -> FleetRow:
    """What the fleet keeps of one report."""
    rank = [Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN]
    problems = sorted((f for f in report.findings if f.verdict in rank), key=lambda f: rank.index(f.verdict))
    names = [gpu.name or "GPU" for gpu in report.topology.gpus] if report.topology else []
    training = [f for f in report.findings if f.check.startswith("smoke-")]
    return FleetRow(
        host=report.host,
        verdict=report.verdict,
        simulated=report.simulated,
        simulation=report.simulation.profile if report.simulation else None,
        system=report.system.os_name,
        driver=report.versions.get("driver"),
        gpus=", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or None,
        training=_training(report, worst(f.verdict for f in training)) if training else None,
        started=report.started,
        seconds=report.seconds,
        counts=report.counts,
        problems=tuple(problems),
        stand_ins=report.simulation.stand_ins if report.simulation else (),
    )


def _training(report: Report, verdict: Verdict) -> str:
    """The training verdict with what it was trained on: a pass on CPU ranks says nothing about the GPUs."""
    run = next((m for name, m in report.measurements.items() if name.startswith("smoke-")), {})
    devices = run.get("devices")
    if not isinstance(devices, list | tuple) or not devices:
        return verdict.value
    kind = "CPU ranks" if run.get("placement") == "cpu" else "GPU ranks"
    return f"{verdict.value} ({len(devices)} {kind})"


def _problem(seen: str, why: str, fix: str) -> Finding:
    return Finding(check="report", verdict=Verdict.UNKNOWN, subject="host", seen=seen, why=why, fix=fix)


def _unreadable(path: Path, reason: str) -> FleetRow:
    finding = _problem(f"{path.name}: {reason}", "this file holds no report that can be merged", "run verify again")
    return FleetRow(host=path.name.removesuffix(".json"), verdict=Verdict.UNKNOWN, problems=(finding,))


def _missing(host: str) -> FleetRow:
    finding = _problem(
        "no report",
        "the host was unreachable, or provisioning or verification stopped before its report was fetched",
        f"read the run's messages about {host}, repair it, then run verify again",
    )
    return FleetRow(host=host, verdict=Verdict.UNKNOWN, problems=(finding,))


def _twice(r: FleetRow) -> FleetRow:
    finding = _problem(
        f"another report of {r.host}", "two reports claim this host, so one of them is stale", "remove the stale file"
    )
    return msgspec.structs.replace(r, verdict=worst([r.verdict, Verdict.UNKNOWN]), problems=(*r.problems, finding))
