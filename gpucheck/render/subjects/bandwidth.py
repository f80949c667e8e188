"""A report of copies between GPUs."""

from collections.abc import Iterator

from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.printable import of_printable
from gpucheck.render.blocks import Block, Document, Findings, Lines, Table, document_of, numbers, words
from gpucheck.render.findings import worst_first
from gpucheck.render.subjects import copies
from gpucheck.render.words import describe_size, list_versions


@of_printable
def document(report: BandwidthReport) -> Document:
    """Who was measured, the matrices, and measured against expected."""
    times = f"{report.device_s:.1f} s of device time (planned {report.planned_s:.1f}), {report.seconds:.1f} s in all"
    devices = [f"{one.index}: {one.name}" + (f" {one.bus_id}" if one.bus_id else "") for one in report.devices]
    more = [Lines(list(_alone(report))), *_sizes(report)]
    return document_of(
        report,
        "bandwidth",
        time=times,
        lines=[*filter(None, [", ".join(list_versions(report.versions))]), *devices],
        findings=Findings(worst_first(report.findings, [device.bus_id for device in report.devices if device.bus_id])),
        body=[copies.section(report, report.findings, more)],
    )


def _alone(report: BandwidthReport) -> Iterator[str]:
    yield from (f"tensor {_tensor(name, value)}" for name, value in (report.tensor or {}).items())
    for device, rate in zip(report.devices, report.local_gb_s, strict=False):
        if rate is not None:
            yield f"inside device {device.index} (device-local, not between GPUs): {rate:.1f} GB/s copied"


def _tensor(name: str, value: float) -> str:
    """``bytes`` and ``0 to 1, GB/s`` are keys of the report, with their unit at the end."""
    if name == "bytes":
        return f"of {value / 1e6:.6g} MB"
    way, _, unit = name.partition(", ")
    return f"{way}: {value:g} {unit}"


def _sizes(report: BandwidthReport) -> Iterator[Block]:
    if not report.sizes:
        return
    ways = list(dict.fromkeys((point.src, point.dst, point.cls) for point in report.sizes))
    sizes = dict.fromkeys(point.size_bytes for point in report.sizes)
    rates = {(point.size_bytes, point.src, point.dst): point.gb_s for point in report.sizes}
    titles = (f"{report.devices[a].index} to {report.devices[b].index} ({cls or '?'})" for a, b, cls in ways)
    rows = [[describe_size(s), *(copies.rate(rates.get((s, a, b))) for a, b, _ in ways)] for s in sizes]
    yield Table([*words("size"), *numbers(*titles, unit="GB/s")], rows, "By size")
