"""Prometheus metrics of hosts and fleets, for node_exporter's textfile collector.

Labels of a GPU are those of dcgm-exporter, so that both join: ``gpu`` is NVML's index, ``UUID`` and ``Hostname`` as it
writes them, ``pci_bus_id`` with a domain of eight digits in capitals. ``Hostname`` is in every sample.
Source: Prometheus exposition formats and metric naming; the collector allows no timestamps and wants a newline at the
end. Base units, counters end in _total.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from gpucheck.model import EXIT_STATUS, Finding, Report, Topology, Verdict, follows, worst
from gpucheck.model.answer import timestamp
from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.model.fleet import FleetReport
from gpucheck.model.measurements import copies_of, trainings_of
from gpucheck.printable import one_line
from gpucheck.render.subjects.copies import by_class

Kind = Literal["gauge", "counter"]
Sample = tuple[Mapping[str, str], float | None]
STATES = "0 pass, 1 warn, 2 fail, 3 unknown"
GB = 1e9
# Units of our metrics -> Prometheus base units.
BASE = {"gb_s": ("bytes_per_second", 1e9), "us": ("seconds", 1e-6), "ms": ("seconds", 1e-3), "percent": ("ratio", 0.01)}


class Family(NamedTuple):
    """One metric with its samples: labels and value, None where there is none."""

    name: str
    help: str
    samples: Iterable[Sample]
    kind: Kind = "gauge"


def write(families: Iterable[Family]) -> str:
    """Write HELP, TYPE and samples of each family; omit a family without samples and a value that is not a number.

    Of two families with one name, and of two samples with the same labels, the first stands: one double would cost the
    collector the whole file.
    """
    lines: list[str] = []
    written: set[str] = set()
    for family in families:
        if family.name in written:
            continue
        written.add(family.name)
        samples: dict[str, str] = {}
        for labels, value in family.samples:
            if value is not None and math.isfinite(value):
                inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
                series = f"{family.name}{{{inside}}}" if inside else family.name
                short = f"{int(value)}" if value == int(value) and abs(value) < 1e15 else f"{value:.9g}"
                samples.setdefault(series, short)
        if samples:
            help_text = family.help.replace("\\", r"\\").replace("\n", r"\n")
            lines += [
                f"# HELP {family.name} {help_text}",
                f"# TYPE {family.name} {family.kind}",
                *map(" ".join, samples.items()),
            ]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return one_line(text).replace("\\", r"\\").replace('"', r"\"")


def to_prometheus(report: Report) -> str:
    """The metrics. Of a simulated machine every sample bears the label simulated="true"."""
    found = copies_of(report.measurements)
    families = [
        *_verdicts(report),
        *(_topology(report.topology) if report.topology else ()),
        *(_copies(found) if found else ()),
        *_trainings(report),
    ]
    mark = {"Hostname": report.host, **({"simulated": "true"} if report.simulated else {})}
    return write(one._replace(samples=[({**own, **mark}, value) for own, value in one.samples]) for one in families)


def _verdicts(report: Report) -> Iterator[Family]:
    versions = {name: version or "" for name, version in report.versions.items() if name in ("driver", "cuda")}
    versions = {"version": report.versions.get("gpucheck") or "", **versions}
    yield Family("gpucheck_build_info", "Which gpucheck looked, at which driver.", [(versions, 1)])
    yield Family("gpucheck_status", f"Verdict of the host: {STATES}.", [({}, EXIT_STATUS[report.verdict])])
    yield Family(
        "gpucheck_findings",
        "Findings by verdict; skip is what does not apply here.",
        [({"verdict": verdict.value}, report.counts.get(verdict.value, 0)) for verdict in Verdict],
    )
    yield Family("gpucheck_check_status", f"Worst verdict of a check about a subject: {STATES}.", _statuses(report))
    about = "What is wrong: 1 warn, 2 fail, with the cause and what is to be done."
    yield Family("gpucheck_finding_status", about, _actions(report))
    seconds = {finding.check: finding.seconds for finding in report.findings if finding.seconds is not None}
    took = [({"check": check}, value) for check, value in seconds.items()]
    yield Family("gpucheck_check_duration_seconds", "What the step of a check took.", took)
    yield Family("gpucheck_run_duration_seconds", "Duration of the run.", [({}, report.seconds)])
    yield Family("gpucheck_last_run_timestamp_seconds", "When the run was started.", [({}, timestamp(report.started))])


def _statuses(report: Report) -> list[Sample]:
    found: dict[tuple[str, str], list[Finding]] = {}
    for finding in report.findings:
        if finding.verdict is not Verdict.SKIP:
            found.setdefault((finding.check, finding.subject), []).append(finding)
    return [
        ({"check": check, **_subject(same[0])}, EXIT_STATUS[worst(finding.verdict for finding in same)])
        for (check, _), same in found.items()
    ]


def _actions(report: Report) -> list[Sample]:
    """One sample a cause, action, owner and GPU, of what is wrong; a fault is one."""
    return [
        (
            {
                "check": finding.check,
                "cause": finding.cause or "",
                "action": finding.action or "none",
                "owner": finding.owner or "node",
                **_subject(finding),
            },
            EXIT_STATUS[finding.verdict],
        )
        for finding in report.findings
        if finding.verdict in (Verdict.WARN, Verdict.FAIL) and not follows(finding)
    ]


def _subject(finding: Finding) -> dict[str, str]:
    """Return ``gpu:A``, ``pair:A-B`` and ``link:A`` as labels; Prometheus omits an empty one."""
    kind, _, name = finding.subject.partition(":")
    first, _, second = name.partition("-") if kind == "pair" else (name, "", "")
    link = name if kind == "link" else ""
    other = finding.subject if kind not in ("host", "gpu", "pair", "link") else ""
    of_gpu = kind in ("gpu", "pair")
    return {
        **_gpu(finding.gpu_index if of_gpu else None, finding.gpu_uuid if of_gpu else None, first if of_gpu else None),
        "peer": second,
        "peer_gpu": _number(finding.peer_index),
        "link": link,
        **({"subject": other} if other else {}),
    }


def _gpu(index: int | None, uuid: str | None, bus_id: str | None) -> dict[str, str]:
    domain, colon, place = (bus_id or "").partition(":")
    if colon and place:
        bus_id = f"{domain.rjust(8, '0')}:{place}".upper()
    return {"gpu": _number(index), "UUID": uuid or "", "pci_bus_id": bus_id or ""}


def _number(index: int | None) -> str:
    return "" if index is None else str(index)


def _topology(topology: Topology) -> Iterator[Family]:
    gpus = {f"GPU{gpu.index}": _gpu(gpu.index, gpu.uuid, gpu.pci_bus_id) for gpu in topology.gpus}
    yield Family("gpucheck_gpus", "GPUs that NVML shows.", [({}, len(topology.gpus))])
    info = [
        (gpus[f"GPU{gpu.index}"] | {"index": str(gpu.index), "name": gpu.name or "", "uuid": gpu.uuid or ""}, 1)
        for gpu in topology.gpus
    ]
    yield Family("gpucheck_gpu_info", "A GPU, with what else it is called.", info)
    functions = topology.wiring.functions if topology.wiring else ()
    ends = [({"device": f.bus_id, "kind": f.kind}, f.link) for f in functions]
    lanes = [(labels, link.width or None) for labels, link in ends]
    yield Family("gpucheck_pcie_link_lanes", "Lanes that a PCIe link of a GPU's path has trained to.", lanes)
    most = [(labels, link.max_width or None) for labels, link in ends]
    yield Family("gpucheck_pcie_link_max_lanes", "Lanes that both ends of the link allow.", most)
    links = dict.fromkeys(gpus, 0)
    for bundle in topology.wiring.nvlinks if topology.wiring else ():
        for end in (bundle.a, bundle.b):
            if end in links:
                links[end] += bundle.links
    up = [(gpus[name], count) for name, count in links.items()] if any(links.values()) else []
    yield Family("gpucheck_nvlink_active_links", "NVLinks of a GPU that are up.", up)


def _copies(found: BandwidthReport) -> Iterator[Family]:
    devices = found.devices
    ends = [
        (
            {
                **_gpu(devices[p.src].index, devices[p.src].uuid, devices[p.src].bus_id),
                "peer": devices[p.dst].bus_id or str(devices[p.dst].index),
                "peer_gpu": str(devices[p.dst].index),
                "path": p.cls or "?",
            },
            p,
        )
        for p in found.pairs
    ]
    rates = [(labels, p.measured.gb_s * GB if p.measured else None) for labels, p in ends]
    yield Family("gpucheck_p2p_bandwidth_bytes_per_second", "Copies from gpu to peer, one direction, median.", rates)
    ratios = [(labels, p.ratio) for labels, p in ends]
    yield Family("gpucheck_p2p_bandwidth_ratio", "Measured over what the path should give.", ratios)
    latencies = [(labels, p.latency_us and p.latency_us * 1e-6) for labels, p in ends]
    yield Family("gpucheck_p2p_latency_seconds", "A small copy from gpu to peer.", latencies)
    lowest: dict[str, float] = {}
    for path in by_class(found):
        if path.rates and (expected := path.first.expected_gb_s):
            lowest[path.cls] = min(expected, lowest.get(path.cls, expected))
    yield Family(
        "gpucheck_p2p_expected_bandwidth_bytes_per_second",
        "What pairs of a path class should give, one direction; the lowest where links differ.",
        [({"path": cls}, rate * GB) for cls, rate in lowest.items()],
    )
    if integrity := found.integrity:
        verified, wrong = integrity.get("bytes_verified", 0), integrity.get("wrong_words", 0)
        yield Family("gpucheck_p2p_verified_bytes_total", "Bytes compared after copies.", [({}, verified)], "counter")
        yield Family("gpucheck_p2p_wrong_words_total", "Words that arrived wrong.", [({}, wrong)], "counter")


def _trainings(report: Report) -> Iterator[Family]:
    runs = [
        ({"check": step, **({"variant": run.variant} if run.variant else {})}, run.performance)
        for step, run in trainings_of(report.measurements)
        if run.performance
    ]
    rates = [(labels, sum(speed.samples_per_s) if speed.samples_per_s else None) for labels, speed in runs]
    yield Family("gpucheck_training_samples_per_second", "All ranks of the training test together.", rates)
    ratios = [(labels, speed.scaling_efficiency) for labels, speed in runs]
    yield Family("gpucheck_training_scaling_ratio", "All ranks over as many single devices.", ratios)


def fleet_to_prometheus(fleet: FleetReport) -> str:
    """The metrics of the merged report. A simulated host has a label."""
    return write([*_fleet(fleet), *_metrics(fleet)])


def _fleet(fleet: FleetReport) -> Iterator[Family]:
    verdicts = [
        ({"host": row.host, "simulated": str(row.simulated).lower()}, EXIT_STATUS.get(row.verdict, 3))
        for row in fleet.hosts
    ]
    yield Family("gpucheck_host_status", f"Verdict of a host: {STATES}.", verdicts)
    times = [({"host": row.host}, timestamp(row.started)) for row in fleet.hosts]
    yield Family("gpucheck_host_last_run_timestamp_seconds", "When the host's report was begun.", times)
    counts = [({"host": row.host}, row.gpu_count if row.group else None) for row in fleet.hosts]
    yield Family("gpucheck_host_gpus", "GPUs that the host reported.", counts)
    counts = [({"verdict": v.value}, fleet.counts.get(v.value, 0)) for v in Verdict if v is not Verdict.SKIP]
    yield Family("gpucheck_fleet_hosts", "Hosts by verdict.", counts)
    yield Family(
        "gpucheck_fleet_outlier_ratio",
        "How far a host's metric is off the normal of its group, as a ratio; negative is below.",
        [({"host": o.host, "metric": o.metric, "at": o.at or "host"}, o.percent / 100) for o in fleet.outliers],
    )
    yield Family(
        "gpucheck_fleet_equal_results_ratio",
        "Results of one operation on equal data that have the digest of the majority; 0 without a majority.",
        [({"operation": a.operation, "on": a.on}, a.equal / a.results) for a in fleet.agreements if a.results],
    )
    problems = "Reports that are missing, unreadable or doubtful."
    yield Family("gpucheck_fleet_report_problems", problems, [({}, len(fleet.problems))])


def _metrics(fleet: FleetReport) -> Iterator[Family]:
    """One family a metric, its class a label."""
    families: dict[str, list[tuple[dict[str, str], float]]] = {}
    for row in fleet.hosts:
        for metric, seen in row.metrics.items():
            name, _, words = metric.partition("[")
            unit = next((unit for unit in BASE if name.endswith(f"_{unit}")), None)
            base, factor = BASE[unit] if unit else ("", 1.0)
            words = words.removesuffix("]")
            full = re.sub(r"[^a-zA-Z0-9_]+", "_", f"gpucheck_host_{name.removesuffix(unit or '')}{base}").strip("_")
            labels = {"host": row.host, **({"path": words} if words else {})}
            families.setdefault(full, []).append((labels, seen.host * factor))
    for name, samples in sorted(families.items()):
        yield Family(name, "What the host measured, its middle.", samples)
