"""What the fleet keeps of one host's report."""

from gpucheck.fleet.metrics import host_metrics
from gpucheck.model import Finding, FleetRow, Report, Verdict, named, worst

RANK = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN)
# A host with more findings than this is unhealthy enough: 10,000 like it must still fit into a merge.
MAX_PROBLEMS = 50
MAX_VALUES = 64


def row(report: Report, *, source: str | None = None, digest: str | None = None) -> FleetRow:
    """One host's report as a row of the fleet."""
    gpus = report.topology.gpus if report.topology else ()
    # A report of an earlier gpucheck names a GPU by its bus id only.
    findings = named((f for f in report.findings if f.verdict in RANK), gpus)
    problems = sorted(findings, key=lambda f: RANK.index(f.verdict))
    names = [gpu.name or "GPU" for gpu in gpus]
    driver = report.versions.get("driver")
    training = [f for f in report.findings if f.check.startswith("smoke-")]
    return FleetRow(
        host=report.host,
        verdict=report.verdict,
        simulated=report.simulated,
        simulation=report.simulation.profile if report.simulation else None,
        system=report.system.os_name,
        driver=driver,
        gpus=", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or None,
        gpu_count=len(names),
        gpu_uuids=tuple(gpu.uuid for gpu in gpus if gpu.uuid),
        gpu_index={gpu.pci_bus_id: gpu.index for gpu in gpus if gpu.pci_bus_id},
        group=_group(names, driver),
        training=_training(report, worst(f.verdict for f in training)) if training else None,
        started=report.started,
        seconds=report.seconds,
        counts=report.counts,
        problems=_bounded(problems),
        stand_ins=report.simulation.stand_ins if report.simulation else (),
        attributes=_attributes(report),
        metrics=host_metrics(report),
        source=source,
        digest=digest,
    )


def _group(names: list[str], driver: str | None) -> str | None:
    """GPU models and driver branch: hosts that should measure the same. None where no GPU was seen."""
    if not names:
        return None
    return f"{' + '.join(sorted(set(names)))}, driver {(driver or 'unknown').partition('.')[0]}"


def _bounded(problems: list[Finding]) -> tuple[Finding, ...]:
    left = len(problems) - MAX_PROBLEMS
    if left <= 0:
        return tuple(problems)
    more = Finding(
        check="report",
        verdict=Verdict.UNKNOWN,
        subject="host",
        seen=f"{left} more findings",
        why=f"a fleet shows {MAX_PROBLEMS} findings of a host",
        fix="read the host's own report",
    )
    return (*problems[:MAX_PROBLEMS], more)


def _attributes(report: Report) -> dict[str, tuple[str, ...]]:
    """What the host has in common with others: versions, system, and what the report itself lists."""
    found = {name: values[:MAX_VALUES] for name, values in sorted(report.attributes.items())[:MAX_VALUES]}
    found |= {name: (version,) for name, version in report.versions.items() if version}
    found |= {"system": (report.system.os_name,), "kernel": (report.system.kernel,), "arch": (report.system.arch,)}
    return found


def _training(report: Report, verdict: Verdict) -> str:
    """The training verdict with what it was trained on: a pass on CPU ranks says nothing about the GPUs."""
    run = next((m for name, m in report.measurements.items() if name.startswith("smoke-")), {})
    devices = run.get("devices")
    if not isinstance(devices, list | tuple) or not devices:
        return verdict.value
    kind = "CPU ranks" if run.get("placement") == "cpu" else "GPU ranks"
    return f"{verdict.value} ({len(devices)} {kind})"
