"""A report of computing: rates, clocks, heat and power of each GPU; and what a host's page shows of one."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from gpucheck.model import Finding, Report
from gpucheck.model.compute import BurnIn, ComputeDevice, ComputeReport
from gpucheck.model.measurements import computed_of
from gpucheck.printable import of_printable
from gpucheck.render.blocks import (
    Block,
    Cell,
    Document,
    Findings,
    Folded,
    Lines,
    Row,
    Section,
    Table,
    document_of,
    numbers,
    words,
)
from gpucheck.render.findings import worst_first
from gpucheck.render.topology import faults
from gpucheck.render.words import list_versions

STEP = "compute-"
NOTHING = "-"
BARS = "▁▂▃▄▅▆▇█"
POINTS = 20  # of one line of bars
SPAN = 12  # columns of "1425 to 1980"
RATES = (
    "TFLOPS, TOPS: 10^12 operations per second; GB/s: 10^9 bytes per second; small or in brackets: part of the ceiling "
    "at the clock under this load (a lower clock is a finding of its own)"
)
# Ways through memory.
WAYS = ("read", "write", "copy")


@of_printable
def document(report: ComputeReport) -> Document:
    """How far a burn-in came, rates and traces."""
    versions = ", ".join(list_versions(report.versions))
    names = dict.fromkeys(gpu.name for gpu in report.gpus)
    gpus = (
        f"{len(report.gpus)} devices ({', '.join(names)}) at the same time, {report.load_seconds:.0f} s of load, "
        f"engine {report.engine}" + (f"; {versions}" if versions and not report.simulated else "")
    )
    unmeasured = (
        f"note: GPU {gpu.index}: {type_} not measured: {rate.note}"
        for gpu in report.gpus
        for type_, rate in gpu.gemm.items()
        if rate.note
    )
    digests = [f"GPU {gpu.index} {what} {digest}" for gpu in report.gpus for what, digest in gpu.digests.items()]
    return document_of(
        report,
        "compute",
        lines=[gpus, *(f"note: {note}" for note in report.notes), *unmeasured],
        findings=Findings(worst_first(report.findings, [gpu.bus_id for gpu in report.gpus if gpu.bus_id])),
        body=[
            *([_burn_in(report.burn_in)] if report.burn_in is not None else []),
            *_section(report.gpus, report.findings),
            Folded("method", "How it was measured", Lines(report.method)),
            Folded("digest", "Digests of the results", Lines(digests)),
        ],
    )


def section(report: Report) -> list[Section]:
    """Return what the step ``compute`` measured; nothing where it has no numbers, or another form of them."""
    found = computed_of(report.measurements)
    return _section(found.gpus, report.findings) if found is not None else []


def _section(gpus: Sequence[ComputeDevice], findings: Iterable[Finding]) -> list[Section]:
    shown: list[Block] = []
    if any(gpu.gemm or gpu.memory.samples or gpu.memory.read_gb_s for gpu in gpus):
        shown.append(_rates(gpus, list(findings)))
    traces = _traces(gpus)
    shown += [traces] if traces.rows else []
    names = {gpu.name for gpu in gpus}
    return [Section("compute", "GPUs under load", shown, names.pop() if len(names) == 1 else "")] if shown else []


def _burn_in(made: BurnIn) -> Section:
    lines = [
        f"{_hours(made.seconds)} of {_hours(made.planned_seconds)}, {made.rounds} of {made.planned_rounds} "
        f"rounds; ended: {made.ended}"
    ]
    if made.hottest:
        degrees = ", ".join(f"GPU {gpu} {degrees:.0f} C" for gpu, degrees in made.hottest.items())
        lines.append(f"highest temperature: {degrees}")
    lines.append(f"kept in {made.state}")
    return Section("burn-in", "Burn-in", [Lines(lines), Folded("limit", "Limits", Lines(made.limits))])


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 2 * 3600 else f"{seconds / 60:.0f} min"


def _rates(gpus: Sequence[ComputeDevice], findings: list[Finding]) -> Table:
    named = len({gpu.name for gpu in gpus}) > 1
    worst = {bus_id: one.verdict for bus_id, one in faults(f for f in findings if f.check.startswith(STEP)).items()}
    used = dict.fromkeys(type_ for gpu in gpus for type_, rate in gpu.gemm.items() if rate.tflops is not None)
    types = tuple(used)
    columns = [
        *words("GPU"),
        *(numbers(type_, unit="TOPS" if type_.startswith("int") else "TFLOPS")[0] for type_ in types),
    ]
    columns += numbers(*(f"memory {way}" for way in WAYS), unit="GB/s")
    rows: list[Row] = [
        [
            Cell(str(gpu.index), gpu.name if named else "", "", worst.get(gpu.bus_id or ""), gpu.bus_id or ""),
            *(Cell(rate, part) for rate, part in rates(gpu, types)),
        ]
        for gpu in gpus
    ]
    return Table(columns, rows, about=RATES, kind="rates")


def rates(gpu: ComputeDevice, types: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield rate and part of the ceiling as text, of each type and of each way through memory."""
    for type_ in types:
        found = gpu.gemm.get(type_)
        if found is None or found.tflops is None:
            yield "", ""
        else:
            yield f"{found.tflops:.3g}" if found.tflops < 100 else f"{found.tflops:.0f}", _part(found.of_ceiling)
    for way in WAYS:
        rate: float | None = getattr(gpu.memory, f"{way}_gb_s")
        ceiling = gpu.memory.ceiling_gb_s
        yield ("", "") if rate is None else (f"{rate:.0f}", _part(rate / ceiling if ceiling else None))


def _part(part: float | None) -> str:
    return "" if part is None else f"{part:.0%}"


def _traces(gpus: Sequence[ComputeDevice]) -> Table:
    """What was read under load, as bars; no row without readings."""
    traced = [gpu for gpu in gpus if gpu.traces]
    names = ("sm_clock_mhz", "power_w", "temperature_c")
    values: dict[tuple[int, str], list[float]] = {}
    for gpu, name in product(traced, names):
        read = (getattr(sample, name) for sample in gpu.traces)
        values[gpu.index, name] = [value for value in read if value is not None]
    most = {name: max((v for gpu in traced for v in values[gpu.index, name]), default=0.0) for name in names}
    rows = []
    for gpu in traced:
        reasons = dict.fromkeys(reason for sample in gpu.traces for reason in sample.reasons or ())
        courses = [_course(values[gpu.index, name], most[name]) for name in names]
        rows.append([str(gpu.index), *courses, ", ".join(reasons) or NOTHING])
    columns = [*words("GPU"), *words("MHz under load", "W", "C", kind="mono"), *words("clock held by")]
    return Table(columns, rows, kind="traces")


def _course(values: Sequence[float], most: float) -> str:
    """Return the span and the course of the values as bars, from zero to the most of all GPUs."""
    if not values:
        return NOTHING
    span, bars = f"{min(values):.0f} to {max(values):.0f}", ""
    if most > 0:
        width = max(1, -(-len(values) // POINTS))
        means = [sum(part) / len(part) for part in (values[i : i + width] for i in range(0, len(values), width))]
        bars = "".join(BARS[min(len(BARS) - 1, int(len(BARS) * max(0.0, mean) / most))] for mean in means)
    return f"{span:<{SPAN}}  {bars}"
