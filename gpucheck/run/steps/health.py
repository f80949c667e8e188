"""The record step: counters, links and settings of GPUs, ports and network cards, kept for ``verify --baseline``."""

from contextlib import suppress

import msgspec

from gpucheck.checks._nvml import no_gpus, not_looked
from gpucheck.checks.pcie.errors import UPTIME, up_hours
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Gpu, NvmlFailure
from gpucheck.model.facts import Facts, Source
from gpucheck.model.record import RECORD, stored
from gpucheck.run.step import Outcome, RunStep

DEADLINE_S = 20.0
TYPICAL_S = 0.005
SHOWN = 8
ABOUT = """Record: what are the counters, links and settings of every GPU and of the ports above it now?

Sources: NVML and sysfs, as the checks read them. Nothing is evaluated here: totals since boot hide a recent burst, so
they are stored in the report under measurements, and verify --baseline REPORT evaluates how fast they rose."""


def record_step() -> RunStep:
    return RunStep(RECORD, frozenset({"hardware", "quick"}), _run, DEADLINE_S, TYPICAL_S, ABOUT)


def _run(source: Source) -> Outcome:
    with suppress(Exception):  # what cannot be read of network cards is a finding of their checks
        source.read("rdma", "counters_at_start")
    facts = source.read("nvml", "pci", "driver", f"text:{UPTIME}")
    kept = stored(facts, up_hours(facts.texts[UPTIME]))
    return Outcome((_finding(facts, ports=len(kept["ports"])),), kept)


def _finding(facts: Facts, ports: int) -> Finding:
    nvml, gpus = facts.nvml, facts.gpus
    if isinstance(nvml, NvmlFailure):
        return not_looked(RECORD, nvml)
    if not gpus:
        return no_gpus(RECORD)
    empty = [gpu.pci_bus_id for gpu in gpus if not _counts(gpu)]
    if empty:
        gaps = [gap for gap in nvml.gaps if gap.subject.removeprefix("gpu:") in empty]
        lines = tuple(f"{gap.call} {gap.subject}: {gap.code} {gap.name}" for gap in gaps)
        subject = Subject(check=RECORD, evidence=lines[:SHOWN])
        if gaps and all(gap.absent for gap in gaps):
            return subject.skips("run.counters-not-offered", gpus=len(empty), of_gpus=len(gpus))
        return subject.unknown("run.counters-not-reported", gpus=len(empty), of_gpus=len(gpus))
    return Subject(check=RECORD).passes(f"counters of {len(gpus)} GPUs and {ports} PCI functions stored")


def _counts(gpu: Gpu) -> bool:
    health = gpu.health
    counters = (*msgspec.structs.astuple(health.ecc_counts), *msgspec.structs.astuple(health.pcie_errors))
    return any(value is not None for value in (*counters, health.row_remap, health.retired_pages))
