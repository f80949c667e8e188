"""A merged fleet report for Prometheus: hosts by verdict, each host's state, and what was measured."""

from collections.abc import Container, Iterator

from gpucheck.model import EXIT_STATUS, FleetReport, Verdict
from gpucheck.render import prometheus
from gpucheck.render.prometheus import Family
from gpucheck.render.words import timestamp

# Units of our metrics -> Prometheus base units.
BASE = {"gb_s": ("bytes_per_second", 1e9), "us": ("seconds", 1e-6), "ms": ("seconds", 1e-3), "percent": ("ratio", 0.01)}


def to_prometheus(fleet: FleetReport) -> str:
    """Write the report. Status 0 pass, 1 warn, 2 fail, 3 unknown; a simulated host has a label."""
    own = [*_hosts(fleet), *_fleet(fleet)]
    return prometheus.write([*own, *_metrics(fleet, {family.name for family in own})])


def _hosts(fleet: FleetReport) -> Iterator[Family]:
    yield Family(
        "gpucheck_host_status",
        "Verdict of a host: 0 pass, 1 warn, 2 fail, 3 unknown.",
        [
            ({"host": row.host, "simulated": str(row.simulated).lower()}, EXIT_STATUS.get(row.verdict, 3))
            for row in fleet.hosts
        ],
    )
    times = ((row.host, timestamp(row.started)) for row in fleet.hosts)
    yield Family(
        "gpucheck_host_last_run_timestamp_seconds",
        "When the host's report was begun.",
        [({"host": host}, time) for host, time in times if time is not None],
    )
    yield Family(
        "gpucheck_host_gpus",
        "GPUs that the host reported.",
        [({"host": r.host}, r.gpu_count) for r in fleet.hosts if r.group],
    )


def _metrics(fleet: FleetReport, taken: Container[str]) -> Iterator[Family]:
    """One family a metric, its class a label. taken: names of our own families, which no report's metric may join."""
    families: dict[str, list[tuple[dict[str, str], float]]] = {}
    for row in fleet.hosts:
        for metric, seen in row.metrics.items():
            name, _, words = metric.partition("[")
            unit = next((unit for unit in BASE if name.endswith(f"_{unit}")), None)
            base, factor = BASE[unit] if unit else ("", 1.0)
            words = words.removesuffix("]")
            full = prometheus.metric_name(f"gpucheck_host_{name.removesuffix(unit or '')}{base}")
            if full in taken:
                full = full.replace("gpucheck_host_", "gpucheck_host_measured_", 1)
            labels = {"host": row.host, **({"path": words} if words else {})}
            families.setdefault(full, []).append((labels, seen.host * factor))
    for name, samples in sorted(families.items()):
        yield Family(name, "What the host measured, its middle.", samples)


def _fleet(fleet: FleetReport) -> Iterator[Family]:
    yield Family(
        "gpucheck_fleet_hosts",
        "Hosts by verdict.",
        [({"verdict": v.value}, fleet.counts.get(v.value, 0)) for v in Verdict if v is not Verdict.SKIP],
    )
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
    yield Family(
        "gpucheck_fleet_report_problems",
        "Reports that are missing, unreadable or doubtful.",
        [({}, len(fleet.problems))],
    )
