"""A host's report for node_exporter's textfile collector.

Labels of a GPU are those of dcgm-exporter, so that both join: ``gpu`` is NVML's index, ``UUID`` and ``Hostname`` as it
writes them, ``pci_bus_id`` with a domain of eight digits in capitals. ``Hostname`` is in every sample.
"""

from collections.abc import Iterator

from gpucheck.model import EXIT_STATUS, Finding, Report, Topology, Verdict, follows, worst
from gpucheck.render import prometheus
from gpucheck.render.copies.measured import Copies, by_class, copies, trainings
from gpucheck.render.prometheus import Family
from gpucheck.render.words import timestamp

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
    mark = {"Hostname": report.host, **({"simulated": "true"} if report.simulated else {})}
    families = [
        family._replace(samples=[({**labels, **mark}, value) for labels, value in family.samples])
        for family in families
    ]
    return prometheus.write(families)


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
        "gpucheck_finding_status",
        "What is wrong: 1 warn, 2 fail, with the cause and what is to be done.",
        _actions(report),
    )
    yield Family(
        "gpucheck_check_duration_seconds",
        "What the step of a check took.",
        [({"check": check}, took) for check, took in seconds.items()],
    )
    yield Family("gpucheck_run_duration_seconds", "Duration of the run.", [({}, report.seconds)])
    started = timestamp(report.started)
    yield Family(
        "gpucheck_last_run_timestamp_seconds",
        "When the run was started.",
        [({}, started)] if started is not None else [],
    )


def _statuses(report: Report) -> list[Sample]:
    """One sample a check and subject. A check that does not apply has none."""
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
    """Return the labels of one GPU as dcgm-exporter has them; empty where they are not known."""
    domain, colon, place = (bus_id or "").partition(":")
    if colon and place:
        bus_id = f"{domain.rjust(8, '0')}:{place}".upper()
    return {"gpu": _number(index), "UUID": uuid or "", "pci_bus_id": bus_id or ""}


def _number(index: int | None) -> str:
    return "" if index is None else str(index)


def _topology(topology: Topology) -> Iterator[Family]:
    gpus = topology.gpus
    yield Family("gpucheck_gpus", "GPUs that NVML shows.", [({}, len(gpus))])
    yield Family(
        "gpucheck_gpu_info",
        "A GPU, with what else it is called.",
        [
            (
                {
                    **_gpu(gpu.index, gpu.uuid, gpu.pci_bus_id),
                    "index": str(gpu.index),
                    "name": gpu.name or "",
                    "uuid": gpu.uuid or "",
                },
                1,
            )
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
    links = {f"GPU{gpu.index}": 0 for gpu in gpus}
    for bundle in topology.wiring.nvlinks if topology.wiring else ():
        for end in (bundle.a, bundle.b):
            if end in links:
                links[end] += bundle.links
    yield Family(
        "gpucheck_nvlink_active_links",
        "NVLinks of a GPU that are up.",
        [(_gpu(gpu.index, gpu.uuid, gpu.pci_bus_id), links[f"GPU{gpu.index}"]) for gpu in gpus]
        if any(links.values())
        else [],
    )


def _copies(found: Copies) -> Iterator[Family]:
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
