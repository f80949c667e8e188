"""The record step: counters, links and settings of every GPU and port, stored in the report for ``--baseline``."""

from collections.abc import Iterable

import msgspec

from gpucheck.checks._nvml import no_gpus, not_looked
from gpucheck.checks._uptime import UPTIME, up_hours
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Gpu, NvmlFailure, NvmlGap, NvmlReading, PciDevice
from gpucheck.model.facts import Source
from gpucheck.model.record import RECORD, GpuRecord, HealthRecord, LinkRecord, PortRecord
from gpucheck.run.step import Outcome, Step

DEADLINE_S = 20.0
TYPICAL_S = 0.005
SHOWN = 8
ABOUT = """Record: what are the counters, links and settings of every GPU and of the ports above it now?

Sources: NVML and sysfs, as the checks read them. Nothing is evaluated here: totals since boot hide a recent burst, so
they are stored in the report under measurements, and verify --baseline REPORT evaluates how fast they rose."""


def record_step() -> Step:
    return Step(RECORD, frozenset({"hardware", "quick"}), _run, DEADLINE_S, TYPICAL_S, ABOUT)


def _run(source: Source) -> Outcome:
    facts = source.read("nvml", "pci", "driver", f"text:{UPTIME}")
    reading = facts.nvml if isinstance(facts.nvml, NvmlReading) else None
    kept = record(reading, facts.pci, up_hours(facts.texts[UPTIME]), facts.driver.loaded_flavour)
    return Outcome((_finding(facts.nvml, kept),), msgspec.to_builtins(kept))


def record(
    reading: NvmlReading | None, pci: Iterable[PciDevice], uptime_hours: float | None, flavour: str | None
) -> HealthRecord:
    """What a report stores of these readings."""
    pci = tuple(pci)
    on_path = {bus_id for device in pci if device.is_nvidia_gpu for bus_id in (device.bus_id, *device.path)}
    return HealthRecord(
        uptime_hours=None if uptime_hours is None else round(uptime_hours, 3),
        module_flavour=flavour,
        gpus=tuple(_gpu(gpu) for gpu in reading.gpus) if reading else (),
        ports=tuple(PortRecord(bus_id=d.bus_id, link=d.link, aer=d.aer) for d in pci if d.bus_id in on_path),
    )


def _gpu(gpu: Gpu) -> GpuRecord:
    health = gpu.health
    return GpuRecord(
        bus_id=gpu.pci_bus_id,
        uuid=gpu.uuid,
        name=gpu.name,
        device_id=gpu.device_id,
        memory_mib=None if gpu.memory_bytes is None else gpu.memory_bytes >> 20,
        memory_used_mib=None if health.memory_used_bytes is None else health.memory_used_bytes >> 20,
        serial=health.serial,
        vbios=health.vbios,
        persistence=health.persistence,
        compute_mode=health.compute_mode,
        mig=health.mig,
        ecc=health.ecc,
        power_limit_w=health.power_limit_w,
        power_w=health.power_w,
        temperature_c=health.temperature_c,
        temperature_slowdown_c=health.temperature_slowdown_c,
        sm_clock_mhz=health.sm_clock_mhz,
        max_sm_clock_mhz=health.max_sm_clock_mhz,
        processes=health.processes,
        pcie=gpu.pcie,
        pcie_errors=health.pcie_errors,
        ecc_errors=health.ecc_counts,
        row_remap=health.row_remap,
        retired_pages=health.retired_pages,
        nvlinks=tuple(
            LinkRecord(
                link=link.link,
                active=link.active,
                replay_errors=link.replay_errors,
                recovery_errors=link.recovery_errors,
                crc_errors=link.crc_errors,
            )
            for link in gpu.nvlinks
        ),
    )


def _finding(nvml: NvmlReading | NvmlFailure, kept: HealthRecord) -> Finding:
    if isinstance(nvml, NvmlFailure):
        return not_looked(RECORD, nvml)
    if not kept.gpus:
        return no_gpus(RECORD)
    empty = [gpu.bus_id for gpu in kept.gpus if not _counts(gpu)]
    if empty:
        gaps = [gap for gap in nvml.gaps if _is_of(gap, empty)]
        lines = tuple(f"{gap.call} {gap.subject}: {gap.code} {gap.name}" for gap in gaps)
        subject = Subject(check=RECORD, evidence=lines[:SHOWN])
        if gaps and all(gap.absent for gap in gaps):
            return subject.skips("run.counters-not-offered", gpus=len(empty), of_gpus=len(kept.gpus))
        return subject.unknown("run.counters-not-reported", gpus=len(empty), of_gpus=len(kept.gpus))
    return Subject(check=RECORD).passes(f"counters of {len(kept.gpus)} GPUs and {len(kept.ports)} PCI functions stored")


def _counts(gpu: GpuRecord) -> bool:
    """Whether anything was reported that a later report could be compared with."""
    counters = (*msgspec.structs.astuple(gpu.ecc_errors), *msgspec.structs.astuple(gpu.pcie_errors))
    return any(value is not None for value in (*counters, gpu.row_remap, gpu.retired_pages))


def _is_of(gap: NvmlGap, bus_ids: list[str]) -> bool:
    return gap.subject.removeprefix("gpu:") in bus_ids
