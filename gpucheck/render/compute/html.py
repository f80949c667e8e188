"""What the page of a host shows of the step ``compute``: the rates as a table, the traces as a drawing."""

from typing import NamedTuple

import msgspec
from markupsafe import Markup

from gpucheck.model import Report
from gpucheck.model.compute import ComputeDevice
from gpucheck.render.chart import STYLE
from gpucheck.render.compute.text import rate_table
from gpucheck.render.compute.traces import WIDTH, drawn, height
from gpucheck.render.svg import document

STEP = "compute"


class Computed(NamedTuple):
    """header and rows: of the rates. drawing: None without readings."""

    header: tuple[str, ...]
    rows: list[list[str]]
    drawing: Markup | None


def view(report: Report) -> Computed | None:
    """Return the section, None if nothing was computed, or if the numbers have another form than those of this step."""
    step = report.measurements.get(STEP, {})
    try:
        gpus = msgspec.convert(step.get("gpus", ()), tuple[ComputeDevice, ...])
    except (msgspec.ValidationError, AttributeError):
        return None
    if not gpus:
        return None
    drawing = None
    if any(gpu.traces for gpu in gpus):
        title = "Clock, power and temperature of the GPUs under load"
        drawing = Markup(document(WIDTH, height(), title, *drawn(gpus), style=STYLE))  # noqa: S704 - escaped by svg
    return Computed(*rate_table(gpus), drawing)
