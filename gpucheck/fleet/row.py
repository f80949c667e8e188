"""What the fleet keeps of one host's report."""

import csv
import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from gpucheck.fleet.digests import digests_of
from gpucheck.fleet.metrics import host_metrics
from gpucheck.foreign import read_text
from gpucheck.knowledge import causes
from gpucheck.knowledge.causes import fix_of, with_actions
from gpucheck.knowledge.codes import Subject, rows, words_of
from gpucheck.model import Finding, Report, Verdict, counted, follows, named, worst
from gpucheck.model.finding import Step, Values, bus_ids
from gpucheck.model.fleet import FleetRow
from gpucheck.model.measurements import of_gpus

REPORT = Subject(check="report")


Text = TypeVar("Text", str, str | None)


def contradictions(report: Report) -> list[str]:
    """Return what in the report cannot be true together, each as the end of a sentence."""
    verdicts = {finding.verdict for finding in report.findings}
    listed = {Verdict(name): count for name, count in counted(report.findings).items()}
    found = []
    if report.verdict is not worst(verdicts):
        found.append(f"its verdict is {report.verdict.name}, and its findings are {_counted(listed)}")
    if any(report.counts.get(verdict.value, 0) != count for verdict, count in listed.items()):
        counts = {verdict: report.counts.get(verdict.value, 0) for verdict in Verdict}
        found.append(f"it counts {_counted(counts)}, and its findings are {_counted(listed)}")
    if report.interrupted and Verdict.UNKNOWN not in verdicts:
        found.append("it was interrupted, and no finding is UNKNOWN")
    if len(set(_simulated(report))) > 1:
        found.append("its parts contradict each other about whether the hardware is simulated")
    return found


ONLY = "excluded by --only"


def is_of_few(row: FleetRow) -> bool:
    """Whether the report is that of the checks which --only named; what --skip left out is the choice of a site."""
    return any(words.endswith(ONLY) for words in row.not_proven)


def doubted(row: FleetRow, found: Sequence[str]) -> FleetRow:
    """Return the row as it is, or UNKNOWN at best with a problem that names each contradiction."""
    if not found:
        return row
    seen = f"{row.source or row.host}: {'; '.join(found)}"
    problems = (*row.problems, REPORT.unknown("fleet.report-contradictory", seen))
    verdict = worst([row.verdict, *(finding.verdict for finding in problems)])
    return replace(row, verdict=verdict, problems=problems)


def _simulated(report: Report) -> list[bool]:
    parts = [report.simulated, report.simulation is not None]
    return parts if report.topology is None else [*parts, report.topology.simulated]


def _counted(counts: dict[Verdict, int]) -> str:
    return ", ".join(f"{count} {verdict.name}" for verdict, count in counts.items() if count) or "none"


RANK = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN)
PROBLEMS = frozenset(RANK)
# A host with more findings than this is unhealthy enough: 10,000 like it must still fit into a merge.
MAX_PROBLEMS = 50
MAX_VALUES = 64
MAX_EVIDENCE = 40
# Characters of one text of a host.
LONGEST = 300
# Of a finding. Its fix is rendered again, or quoted.
TEXTS = ("check", "subject", "code", "because_of", "because_of_subject", "seen", "wanted", "unit", "cause", "why")
# Of all values of a finding.
MOST_OF_VALUES = 2000
# Compares versions, and trains nothing.
VERSIONS = "smoke-versions"
# Names of the merge's own findings.
OWN_CHECKS = ("fleet", "report")


def row(report: Report, *, host: str, stated: str | None, source: str, digest: str) -> FleetRow:
    """One host's report as a row of the fleet: never better than its findings.

    host: what the fleet calls it. stated: the name in the report where that is another.
    """
    gpus = report.topology.gpus if report.topology else ()
    # A report of an earlier gpucheck names a GPU by its bus id only.
    findings = named((f for f in report.findings if f.verdict in PROBLEMS), gpus)
    # What leads comes first: of many findings the last are left out.
    problems = sorted(findings, key=lambda f: (RANK.index(f.verdict), follows(f)))
    names = [_cut(gpu.name or "GPU") for gpu in gpus]
    measured = of_gpus(report.measurements)
    partial, driver = report.partial, _cut(report.versions.get("driver"))
    # Marked in every format, as the report states nothing about the other GPUs.
    share = "" if partial is None else f" (partial, host has {len(partial.usable) + len(partial.hidden)})"
    training = [f for f in report.findings if f.check.startswith("smoke-") and f.check != VERSIONS]
    found = FleetRow(
        host=host,
        stated=stated,
        verdict=report.verdict,
        # A simulated result must never look real.
        simulated=any(_simulated(report)),
        simulation=_cut(report.simulation.profile) if report.simulation else None,
        system=_cut(report.system.os_name) or None,
        driver=driver,
        gpus=_cut((", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) + share).strip())
        or None,
        gpu_count=len(names),
        gpu_uuids=tuple(_cut(gpu.uuid) for gpu in gpus if gpu.uuid),
        gpu_index={_cut(gpu.pci_bus_id): gpu.index for gpu in gpus if gpu.pci_bus_id},
        partial=partial is not None,
        not_proven=tuple(map(_cut, report.not_proven[:MAX_VALUES])),
        group=_group(names, driver),
        training=_training(report, worst(f.verdict for f in training)) if training else None,
        started=_cut(report.started),
        seconds=report.seconds,
        counts={verdict.value: report.counts.get(verdict.value, 0) for verdict in Verdict},
        problems=_bounded(problems),
        stand_ins=tuple(map(_cut, report.simulation.stand_ins[:MAX_VALUES])) if report.simulation else (),
        attributes=_attributes(report),
        metrics=host_metrics(measured, report.findings),
        digests=digests_of(measured.compute, measured.trainings),
        source=source,
        digest=digest,
    )
    return doubted(found, contradictions(report))


def _group(names: list[str], driver: str | None) -> str | None:
    """GPU models and driver branch: hosts that should measure the same. None where no GPU was seen."""
    if not names:
        return None
    return f"{' + '.join(sorted(set(names)))}, driver {(driver or 'unknown').partition('.')[0]}"


def _bounded(problems: list[Finding]) -> tuple[Finding, ...]:
    left = len(problems) - MAX_PROBLEMS
    if left <= 0:
        return tuple(map(_kept, problems))
    more = REPORT.unknown("fleet.findings-left-out", f"{left} more findings", most=MAX_PROBLEMS)
    return (*map(_kept, problems[:MAX_PROBLEMS]), more)


def _kept(finding: Finding) -> Finding:
    """Return the finding with texts of a bounded length, steps of our own, and no name of the merge's own."""
    texts = {name: getattr(finding, name) for name in TEXTS}
    kept = replace(
        finding,
        **{name: _cut(text) if isinstance(text, str) else text for name, text in texts.items()},
        # Without them the words of the code are not known, and what the host reports is quoted.
        values=finding.values if len(repr(finding.values)) <= MOST_OF_VALUES else {},
        evidence=tuple(map(_cut, finding.evidence[:MAX_EVIDENCE])),
    )
    if finding.check in OWN_CHECKS:
        kept = replace(kept, check=f"host's {finding.check}")
    return with_actions((advised(kept),))[0]


def _cut(text: Text) -> Text:
    return text if text is None or len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _attributes(report: Report) -> dict[str, tuple[str, ...]]:
    """What the host has in common with others: versions, system, and what the report itself lists."""
    listed = sorted(report.attributes.items())[:MAX_VALUES]
    found = {_cut(name): tuple(map(_cut, values[:MAX_VALUES])) for name, values in listed}
    versions = sorted(report.versions.items())[:MAX_VALUES]
    found |= {_cut(name): (_cut(version),) for name, version in versions if version}
    system = report.system
    about = {"system": system.os_name, "kernel": system.kernel, "arch": system.arch}
    # A report of compute is of the GPUs that were chosen.
    if system.kernel and report.topology is not None and report.topology.gpus:
        about["gpus"] = str(len(report.topology.gpus) + len(report.partial.hidden if report.partial else ()))
    return found | {name: (_cut(value),) for name, value in about.items() if value}


def _training(report: Report, verdict: Verdict) -> str:
    """Return the training verdict with its devices: a pass on CPU ranks is no evidence about the GPUs."""
    run = next((m for name, m in report.measurements.items() if name.startswith("smoke-")), {})
    devices = run.get("devices")
    if not isinstance(devices, list | tuple) or not devices:
        return verdict.value
    kind = "CPU ranks" if run.get("placement") == "cpu" else "GPU ranks"
    return f"{verdict.value} ({len(devices)} {kind})"


QUOTED = "the host's report states: "


@cache
def _known() -> frozenset[str]:
    return frozenset(name for name, _ in rows())


def advised(finding: Finding) -> Finding:
    """Return the finding with why and steps of its code, or with its own advice as a quotation."""
    if finding.code not in _known():
        return _quoted(finding)
    if not any(map(_is_option, (*finding.values.values(), *bus_ids(finding.subject)))):
        try:
            why, steps = words_of(finding.code or "", finding.subject, finding.values, cause=finding.cause)
            return replace(finding, why=why, steps=steps, fix=fix_of(steps))
        except (LookupError, ValueError, TypeError, OverflowError):
            pass  # the values are not those that this version has for the code
    return _quoted(replace(finding, code=None, values={}))


def _is_option(value: Values) -> bool:
    """Whether a program would take a value for an option of its own, which quotes do not prevent."""
    several = value if isinstance(value, tuple) else (value,)
    return any(isinstance(one, str) and one.startswith("-") for one in several)


def _quoted(finding: Finding) -> Finding:
    cause = causes().get(finding.cause or "")
    steps = cause.advice if cause is not None else ()
    if finding.fix != fix_of(steps):
        # On one line, and without a character that ends the quotation.
        lines = (" ".join(line.split()) for line in finding.fix.splitlines() if line.strip())
        quotation = _cut("; ".join(lines).replace('"', "'"))
        steps += (Step(text=f'{QUOTED}"{quotation}"', changes=True),)
    return replace(finding, steps=steps, fix=fix_of(steps))


# Labels of hosts, from a file.
Labels = dict[str, dict[str, str]]
HOST_COLUMNS = ("host", "hostname", "node", "name")
MAX_LABELS_BYTES = 64 * 1024 * 1024


def read_labels(path: Path) -> Labels:
    """Labels by host, from CSV with a column ``host``.

    Raises UnreadableInput when the file cannot be read, ValueError with a whole sentence when it holds no labels.
    """
    text = read_text(path, MAX_LABELS_BYTES, "Give a CSV file of labels")
    reader = csv.DictReader(io.StringIO(text))
    try:
        column = next((name for name in reader.fieldnames or () if name.strip().lower() in HOST_COLUMNS), None)
        if column is None:
            raise ValueError(f"{path}: the first line has no column 'host'. Write, for example: host,rack")
        return {
            line[column].strip(): {k.strip(): (v or "").strip() for k, v in line.items() if k and k != column}
            for line in reader
            if line[column]
        }
    except (csv.Error, AttributeError) as error:
        raise ValueError(f"{path}: line {reader.line_num}: {error}. Write a cell for every column.") from error


def labelled(rows: Sequence[FleetRow], labels: Labels) -> list[FleetRow]:
    out = []
    for row in rows:
        more = labels.get(row.host) or labels.get(row.host.partition(".")[0]) or {}
        found = {name: (value,) for name, value in more.items() if value}
        out.append(replace(row, attributes=row.attributes | found) if found else row)
    return out


def lemons(labels: Labels) -> tuple[str, ...]:
    """Return the nodes that ``fleet history`` ranked, the worst first. Raises ValueError, a whole sentence."""
    places = {host: more["lemon"] for host, more in labels.items() if more.get("lemon")}
    for host, place in places.items():
        if not place.isdecimal():
            raise ValueError(f"{host}: lemon {place!r}: expected a number, as fleet history writes it.")
    return tuple(sorted(places, key=lambda host: int(places[host])))
