"""Every kind of page, healthy, with findings, large and hostile."""

import re

import msgspec

from gpucheck.model import Verdict, worst
from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.model.diagnosis import Diagnosis
from gpucheck.model.diagnosis.observations import Observations, ObservedGpu
from gpucheck.render.write.fleet_page import to_html as fleet_page
from tests.fleet.reports import bad, merged, steady
from tests.fleet.reports import report as fleet_host
from tests.render import diagnosed, reports
from tests.render.hostile import hostile
from tests.render.report.test_html import gpu
from tests.render.views import bandwidth_page, diagnosis_page, report_page, topology_page
from tests.topology.servers import topology

# Counts of the widest tiles.
MANY = {"pass": 123_456, "warn": 1_234, "fail": 88_888, "unknown": 100_000, "skip": 7}
REPORTS = reports.REPORTS | {"rack": msgspec.structs.replace(reports.sick(72), counts=MANY)}


def diagnosis(findings, count=8):
    verdicts = [one.verdict for one in findings]
    return Diagnosis(
        verdict=worst(verdicts),
        source=("machine.yml",),
        gpus=count,
        findings=findings,
        counts={verdict.value: verdicts.count(verdict) for verdict in Verdict},
        observations=Observations(gpus=tuple(ObservedGpu(bus_id=name) for name in diagnosed.named_gpus(count))),
    )


def bandwidth(findings, count=8):
    given = {
        "host": "node07", "simulated": True, "simulation": reports.SIMULATION, "engine": "simulated",
        "depth": "default", "versions": {"driver": "580.95.05"}, "started": "2026-11-21T16:00:00+00:00",
        "seconds": 4.5, "planned_s": 1.0, "device_s": 1.0, "rounds": 7, "verdict": "fail",
        "findings": findings, "counts": {"fail": 1},
    }  # fmt: skip
    return msgspec.convert(
        {**reports.copies(diagnosed.named_gpus(count)), **given}, BandwidthReport, from_attributes=True
    )


def loaded():
    """A report of eight GPUs that computed."""
    gpus = msgspec.to_builtins([gpu(n, 60.0 + n) for n in range(8)])
    return reports.report(reports.passed(), measurements={"compute": {"gpus": gpus}})


def without_scripts(page):
    return re.sub(r"<script>.*?</script>", "", page, flags=re.S)


DIAGNOSES = {name: diagnosis(make(), count) for name, (make, count) in diagnosed.ALL.items()}
DIAGNOSES["hostile"] = hostile(Diagnosis)
EVIL_HOST = fleet_host(
    reports.EVIL, verdict=Verdict.FAIL, findings=(bad(seen=reports.EVIL),), attributes={reports.EVIL: (reports.EVIL,)}
)
PAGES = {
    **{f"report-{name}": report_page(made) for name, made in REPORTS.items()},
    **{f"diagnosis-{name}": diagnosis_page(made) for name, made in DIAGNOSES.items()},
    "measured": report_page(
        reports.report(diagnosed.finding(), measurements={"p2p": reports.copies(diagnosed.named_gpus(8))})
    ),
    "bandwidth": bandwidth_page(bandwidth(diagnosed.winner())),
    "bandwidth-rack": bandwidth_page(bandwidth(diagnosed.rack(), 72)),
    "bandwidth-hostile": bandwidth_page(hostile(BandwidthReport, pairs=(), matrices={}, host_device=(), sizes=())),
    "load": report_page(loaded()),
    "topology": topology_page(topology(8, 4)),
    "topology-rack": topology_page(topology(72, 4, switch_links=18)),
    "fleet": fleet_page(merged(*steady(), fleet_host("slow", 340.0), EVIL_HOST)),
}
