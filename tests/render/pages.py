"""Every kind of page, healthy, with findings, large and hostile."""

import re

import msgspec
from msgspec import UNSET

from gpucheck.model import Verdict, worst
from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.model.diagnosis import Diagnosis
from gpucheck.model.diagnosis.ranking_record import ranking_record
from gpucheck.render.bandwidth import to_html as bandwidth_page
from gpucheck.render.diagnosis import to_html as diagnosis_page
from gpucheck.render.fleet.html import to_html as fleet_page
from gpucheck.render.report.html import to_html as report_page
from tests.fleet.reports import bad, merged, steady
from tests.fleet.reports import report as fleet_host
from tests.render import judgements, reports
from tests.render.compute.test_traces import gpu
from tests.render.hostile import hostile

# Counts of the widest tiles.
MANY = {"pass": 123_456, "warn": 1_234, "fail": 88_888, "unknown": 100_000, "skip": 7}
REPORTS = reports.REPORTS | {"rack": msgspec.structs.replace(reports.sick(72), counts=MANY)}


def diagnosis(judgement):
    verdicts = [one.verdict for one in judgement.findings]
    return Diagnosis(
        verdict=worst(verdicts),
        source=("machine.yml",),
        gpus=len(judgement.gpus),
        findings=judgement.findings,
        counts={verdict.value: verdicts.count(verdict) for verdict in Verdict},
        ranking=judgement.ranking,
        gpu_names=judgement.gpus,
        decided=judgement.decided,
    )


def measured(judgement):
    """p2p of a report, with the ranking."""
    return {**reports.copies(judgement.gpus), "ranking": msgspec.to_builtins(ranking_record(judgement))}


def bandwidth(judgement, **fields):
    given = {
        "host": "node07", "simulated": True, "simulation": reports.SIMULATION, "engine": "simulated",
        "depth": "default", "versions": {"driver": "580.95.05"}, "started": "2026-11-21T16:00:00+00:00",
        "seconds": 4.5, "planned_s": 1.0, "device_s": 1.0, "rounds": 7, "verdict": "fail",
        "findings": judgement.findings, "counts": {"fail": 1},
    }  # fmt: skip
    every = {name: value for name, value in {**measured(judgement), **given, **fields}.items() if value is not UNSET}
    return msgspec.convert(every, BandwidthReport, from_attributes=True)


def loaded():
    """A report of eight GPUs that computed."""
    gpus = msgspec.to_builtins([gpu(n, 60.0 + n) for n in range(8)])
    return reports.report(reports.passed(), measurements={"compute": {"gpus": gpus}})


def without_scripts(page):
    return re.sub(r"<script>.*?</script>", "", page, flags=re.S)


DIAGNOSES = {name: diagnosis(make()) for name, make in judgements.ALL.items()} | {"hostile": hostile(Diagnosis)}
EVIL_HOST = fleet_host(
    reports.EVIL, verdict=Verdict.FAIL, findings=(bad(seen=reports.EVIL),), attributes={reports.EVIL: (reports.EVIL,)}
)
PAGES = {
    **{f"report-{name}": report_page(made) for name, made in REPORTS.items()},
    **{f"diagnosis-{name}": diagnosis_page(made) for name, made in DIAGNOSES.items()},
    "explained": report_page(reports.report(judgements.finding(), measurements={"p2p": measured(judgements.winner())})),
    "explained-healthy": report_page(reports.report(measurements={"p2p": measured(judgements.healthy())})),
    "bandwidth": bandwidth_page(bandwidth(judgements.winner())),
    "bandwidth-rack": bandwidth_page(bandwidth(judgements.rack())),
    "bandwidth-hostile": bandwidth_page(hostile(BandwidthReport, pairs=(), matrices={}, host_device=(), sizes=())),
    "load": report_page(loaded()),
    "fleet": fleet_page(merged(*steady(), fleet_host("slow", 340.0), EVIL_HOST)),
}
