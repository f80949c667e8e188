"""What the page of a host shows of the step ``compute``: the rates and the traces as tables."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from gpucheck.model import Finding, Report, Verdict
from gpucheck.model.compute import ComputeDevice
from gpucheck.model.finding.naming import bus_ids
from gpucheck.render.compute.text import WAYS, rates, trace_table, used_types

STEP = "compute"
BAD = (Verdict.FAIL, Verdict.WARN)


class Row(NamedTuple):
    """One GPU. verdict: of the worst finding of this step about it. cells: rate and part of the ceiling."""

    number: int
    name: str
    bus_id: str
    verdict: Verdict | None
    cells: list[tuple[str, str]]


class Computed(NamedTuple):
    """columns: what each rate is, and its unit. model: the name of all GPUs if it is one. traces: header and rows."""

    columns: list[tuple[str, str]]
    rows: list[Row]
    model: str
    traces: tuple[tuple[str, ...], list[list[str]]]


def view(report: Report) -> Computed | None:
    """Return the section, None if nothing was computed, or if the numbers have another form than those of this step."""
    step = report.measurements.get(STEP, {})
    try:
        gpus = msgspec.convert(step.get("gpus", ()), tuple[ComputeDevice, ...])
    except (msgspec.ValidationError, AttributeError):
        return None
    if not gpus:
        return None
    types, names = used_types(gpus), {gpu.name for gpu in gpus}
    columns = [(type_, "TOPS" if type_.startswith("int") else "TFLOPS") for type_ in types]
    columns += [(f"memory {way}", "GB/s") for way in WAYS]
    rows = [
        Row(gpu.index, gpu.name, gpu.bus_id or "", _worst(gpu, report.findings), list(rates(gpu, types)))
        for gpu in gpus
    ]
    return Computed(columns, rows, names.pop() if len(names) == 1 else "", trace_table(gpus))


def _worst(gpu: ComputeDevice, findings: Iterable[Finding]) -> Verdict | None:
    found = (f.verdict for f in findings if f.check.startswith(f"{STEP}-") and gpu.bus_id in bus_ids(f.subject))
    return min((verdict for verdict in found if verdict in BAD), key=BAD.index, default=None)
