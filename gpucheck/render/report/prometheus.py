"""A host's report for node_exporter's textfile collector."""

from collections.abc import Iterator
from datetime import datetime

from gpucheck.model import EXIT_STATUS, Report, Topology, Verdict, worst
from gpucheck.render import prometheus
from gpucheck.render.copies.measured import Copies, by_class, copies, trainings
from gpucheck.render.prometheus import Family

Sample = tuple[dict[str, str], float]
STATES = "0 pass, 1 warn, 2 fail, 3 unknown"
GB = 1e9


def to_prometheus(report: Report) -> str:
    """The metrics. Of a simulated machine every sample bears the label simulated="true"."""
    found = copies(report)
    families = [
        *_verdicts(report),
        *(_topology(report.topology) if report.topology else ()),
        *(_copies(found) if found else ()),
        *_trainings(report),
    ]
    if not report.simulated:
        return prometheus.write(families)
    mark = {"simulated": "true"}
    return prometheus.write(
        family._replace(samples=[({**labels, **mark}, value) for labels, value in family.samples])
        for family in families
    )


def _verdicts(report: Report) -> Iterator[Family]:
    versions = {name: version or "" for name, version in report.versions.items() if name in ("driver", "cuda")}
    version = report.versions.get("gpucheck") or ""
    yield Family(
        "gpucheck_build_info", "Which gpucheck looked, at which driver.", [({"version": version, **versions}, 1)]
    )
    yield Family("gpucheck_status", f"Verdict of the host: {STATES}.", [({}, EXIT_STATUS[report.verdict])])
    yield Family(
        "gpucheck_findings",
        "Findings by verdict; skip is what does not apply here.",
        [({"verdict": verdict.value}, report.counts.get(verdict.value, 0)) for verdict in Verdict],
    )
    yield Family("gpucheck_check_status", f"Worst verdict of a check about a subject: {STATES}.", _statuses(report))
    seconds = {finding.check: finding.seconds for finding in report.findings if finding.seconds is not None}
    yield Family(
        "gpucheck_check_duration_seconds",
        "What the step of a check took.",
        [({"check": check}, took) for check, took in seconds.items()],
    )
    yield Family("gpucheck_run_duration_seconds", "Duration of the run.", [({}, report.seconds)])
    yield Family(
        "gpucheck_last_run_timestamp_seconds",
        "When the run was started.",
        _started(report),
    )


def _started(report: Report) -> list[Sample]:
    """No sample where the report does not hold a date."""
    try:
        return [({}, datetime.fromisoformat(report.started).timestamp())]
    except (ValueError, OverflowError, OSError):
        return []


def _statuses(report: Report) -> list[Sample]:
    """One sample a check and subject. A check that does not apply has none."""
    found: dict[tuple[str, str], list[Verdict]] = {}
    for finding in report.findings:
        if finding.verdict is not Verdict.SKIP:
            found.setdefault((finding.check, finding.subject), []).append(finding.verdict)
    return [
        ({"check": check, **_subject(subject)}, EXIT_STATUS[worst(verdicts)])
        for (check, subject), verdicts in found.items()
    ]


def _subject(subject: str) -> dict[str, str]:
    """Return ``gpu:A``, ``pair:A-B`` and ``link:A`` as labels; an empty label is omitted."""
    kind, _, name = subject.partition(":")
    first, _, second = name.partition("-") if kind == "pair" else (name, "", "")
    link = name if kind == "link" else ""
    other = subject if kind not in ("host", "gpu", "pair", "link") else ""
    gpu = first if kind in ("gpu", "pair") else ""
    return {"gpu": gpu, "peer": second, "link": link, **({"subject": other} if other else {})}


def _topology(topology: Topology) -> Iterator[Family]:
    gpus = topology.gpus
    yield Family("gpucheck_gpus", "GPUs that NVML shows.", [({}, len(gpus))])
    yield Family(
        "gpucheck_gpu_info",
        "A GPU by bus id, with what else it is called.",
        [
            ({"gpu": gpu.pci_bus_id or "", "index": str(gpu.index), "name": gpu.name or "", "uuid": gpu.uuid or ""}, 1)
            for gpu in gpus
        ],
    )
    functions = topology.wiring.functions if topology.wiring else ()
    ends = [({"device": f.bus_id, "kind": f.kind}, f.link) for f in functions]
    yield Family(
        "gpucheck_pcie_link_lanes",
        "Lanes that a PCIe link of a GPU's path has trained to.",
        [(labels, link.width) for labels, link in ends if link.width],
    )
    yield Family(
        "gpucheck_pcie_link_max_lanes",
        "Lanes that both ends of the link allow.",
        [(labels, link.max_width) for labels, link in ends if link.max_width],
    )
    bus_ids = {f"GPU{gpu.index}": gpu.pci_bus_id or f"GPU{gpu.index}" for gpu in gpus}
    links = dict.fromkeys(bus_ids.values(), 0)
    for bundle in topology.wiring.nvlinks if topology.wiring else ():
        for end in (bundle.a, bundle.b):
            if end in bus_ids:
                links[bus_ids[end]] += bundle.links
    yield Family(
        "gpucheck_nvlink_active_links",
        "NVLinks of a GPU that are up.",
        [({"gpu": gpu}, count) for gpu, count in links.items()] if any(links.values()) else [],
    )


def _copies(found: Copies) -> Iterator[Family]:
    names = [device.bus_id or str(device.index) for device in found.devices]
    ends = [({"gpu": names[p.src], "peer": names[p.dst], "path": p.cls or "?"}, p) for p in found.pairs]
    rates = [(labels, p.measured.gb_s * GB) for labels, p in ends if p.measured is not None]
    yield Family("gpucheck_p2p_bandwidth_bytes_per_second", "Copies from gpu to peer, one direction, median.", rates)
    yield Family(
        "gpucheck_p2p_bandwidth_ratio",
        "Measured over what the path should give.",
        [(labels, p.ratio) for labels, p in ends if p.ratio is not None],
    )
    yield Family(
        "gpucheck_p2p_latency_seconds",
        "A small copy from gpu to peer.",
        [(labels, p.latency_us * 1e-6) for labels, p in ends if p.latency_us is not None],
    )
    expected = [(rates.cls, rates.expected) for rates in by_class(found)]
    yield Family(
        "gpucheck_p2p_expected_bandwidth_bytes_per_second",
        "What pairs of a path class should give, one direction; the lowest where links differ.",
        [({"path": cls}, _lowest(expected, cls) * GB) for cls in dict.fromkeys(c for c, e in expected if e)],
    )
    yield from _integrity(found)


def _lowest(expected: list[tuple[str, float | None]], cls: str) -> float:
    return min(rate for name, rate in expected if name == cls and rate is not None)


def _integrity(found: Copies) -> Iterator[Family]:
    integrity = found.integrity
    if integrity:
        verified, wrong = integrity.get("bytes_verified", 0), integrity.get("wrong_words", 0)
        yield Family("gpucheck_p2p_verified_bytes_total", "Bytes compared after copies.", [({}, verified)], "counter")
        yield Family("gpucheck_p2p_wrong_words_total", "Words that arrived wrong.", [({}, wrong)], "counter")


def _trainings(report: Report) -> Iterator[Family]:
    runs = [
        ({"check": run.step, **({"variant": run.variant} if run.variant else {})}, run.performance)
        for run in trainings(report)
    ]
    yield Family(
        "gpucheck_training_samples_per_second",
        "All ranks of the training test together.",
        [(labels, sum(speed.samples_per_s)) for labels, speed in runs if speed and speed.samples_per_s],
    )
    yield Family(
        "gpucheck_training_scaling_ratio",
        "All ranks over as many single devices.",
        [
            (labels, speed.scaling_efficiency)
            for labels, speed in runs
            if speed and speed.scaling_efficiency is not None
        ],
    )
