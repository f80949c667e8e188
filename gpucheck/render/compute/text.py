"""A compute report as text: rates, clocks, heat and power of each GPU, and the findings."""

from collections.abc import Iterator, Sequence

from gpucheck.model.compute import BurnIn, ComputeDevice, ComputeReport, Noticed, Sample
from gpucheck.printable import of_printable
from gpucheck.render.findings.text import TROUBLE, blocks
from gpucheck.render.words import (
    describe_simulation,
    first_line,
    last_line,
    list_versions,
    paragraphs,
    simulated_mark,
    table,
)

NOTHING = "-"
BARS = "▁▂▃▄▅▆▇█"
POINTS = 20  # of one line of bars
SPAN = 12  # columns of "1425 to 1980"
RATES = "matrix products in TFLOPS (10^12 operations per second), memory in GB/s; in brackets the part of the ceiling"
# Ways through memory.
WAYS = ("read", "write", "copy")


@of_printable
def to_text(report: ComputeReport, *, verbose: bool = False, width: int | None = None) -> str:
    """What is wrong first, then rates and traces, then the findings that are good.

    verbose: also the method. width: columns of the terminal.
    """
    bus_ids = tuple(gpu.bus_id for gpu in report.gpus if gpu.bus_id)
    digests = [f"digest: GPU {g.index} {what} {digest}" for g in report.gpus for what, digest in g.digests.items()]
    return paragraphs(
        [
            _head(report),
            _burn_in(report.burn_in, verbose=verbose) if report.burn_in is not None else [],
            blocks((f for f in report.findings if f.verdict in TROUBLE), bus_ids),
            _rates(report.gpus, width),
            _traces(report.gpus, width),
            [f"method: {line}" for line in report.method] if verbose else [],
            digests if verbose else [],
            blocks((f for f in report.findings if f.verdict not in TROUBLE), bus_ids, passes=True),
            [_last(report)],
        ]
    )


def _head(report: ComputeReport) -> Iterator[str]:
    mark = simulated_mark(describe_simulation(report.simulation)) if report.simulated else ""
    yield first_line("compute", report.host, mark)
    versions = ", ".join(list_versions(report.versions))
    names = dict.fromkeys(gpu.name for gpu in report.gpus)
    yield (
        f"{len(report.gpus)} devices ({', '.join(names)}) at the same time, {report.load_seconds:.0f} s of load, "
        f"engine {report.engine}" + (f"; {versions}" if versions and not report.simulated else "")
    )
    yield from (f"note: {note}" for note in report.notes)
    yield from (
        f"note: GPU {gpu.index}: {type_} not measured: {rate.note}"
        for gpu in report.gpus
        for type_, rate in gpu.gemm.items()
        if rate.note
    )


def _burn_in(made: BurnIn, *, verbose: bool) -> Iterator[str]:
    """Yield how far a burn-in came, and what it found when. verbose: also the limits."""
    starts = f", {made.sessions} starts" if made.sessions > 1 else ""
    ended = f"ended: {made.ended}" + (f" ({made.reason})" if made.reason else "")
    yield (
        f"burn-in: {_hours(made.seconds)} of {_hours(made.planned_seconds)}, {made.rounds} of {made.planned_rounds} "
        f"rounds{starts}; {ended}"
    )
    if made.hottest:
        yield "highest temperature: " + ", ".join(f"GPU {gpu} {degrees:.0f} C" for gpu, degrees in made.hottest.items())
    yield f"kept in {made.state}"
    if verbose:
        yield from (f"limit: {limit}" for limit in made.limits)
    if made.noticed:
        yield from table(("after", "time", "verdict", "check", "subject", "seen"), map(_noticed, made.noticed))


def _noticed(one: Noticed) -> list[str]:
    return [_hours(one.at), one.time, one.verdict.value, one.check, one.subject, one.seen]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 2 * 3600 else f"{seconds / 60:.0f} min"


def _rates(gpus: Sequence[ComputeDevice], width: int | None) -> Iterator[str]:
    if any(gpu.gemm or gpu.memory.samples for gpu in gpus):
        yield from table(*rate_table(gpus), width)
        yield RATES


def rate_table(gpus: Sequence[ComputeDevice]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Return header and rows: a column for each type and for each way through memory."""
    types = used_types(gpus)
    named = len({gpu.name for gpu in gpus}) > 1
    rows = [
        [
            f"{gpu.index} {gpu.name}" if named else str(gpu.index),
            *(f"{rate} ({part})" if part else rate for rate, part in rates(gpu, types)),
        ]
        for gpu in gpus
    ]
    return ("GPU", *types, *WAYS), rows


def used_types(gpus: Sequence[ComputeDevice]) -> tuple[str, ...]:
    """Return the types whose matrix products were measured."""
    return tuple(dict.fromkeys(type_ for gpu in gpus for type_, rate in gpu.gemm.items() if rate.tflops is not None))


def rates(gpu: ComputeDevice, types: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield rate and part of the ceiling as text, of each type and of each way through memory."""
    for type_ in types:
        found = gpu.gemm.get(type_)
        if found is None or found.tflops is None:
            yield NOTHING, ""
        else:
            yield _figures(found.tflops), _part(found.of_ceiling)
    for way in WAYS:
        rate: float | None = getattr(gpu.memory, f"{way}_gb_s")
        ceiling = gpu.memory.ceiling_gb_s
        yield (NOTHING, "") if rate is None else (f"{rate:.0f}", _part(rate / ceiling if ceiling else None))


def _figures(value: float) -> str:
    """Three significant figures, without an exponent."""
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _part(part: float | None) -> str:
    return "" if part is None else f"{part:.0%}"


def _traces(gpus: Sequence[ComputeDevice], width: int | None) -> Iterator[str]:
    header, rows = trace_table(gpus)
    yield from table(header, rows, width) if rows else ()


def trace_table(gpus: Sequence[ComputeDevice]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Return header and rows: what was read under load, as bars; no row without readings."""
    traced = [gpu for gpu in gpus if gpu.traces]
    columns = ("sm_clock_mhz", "power_w", "temperature_c")
    values = {(gpu.index, name): _values(gpu.traces, name) for gpu in traced for name in columns}
    most = {name: max((v for gpu in traced for v in values[gpu.index, name]), default=0.0) for name in columns}
    rows = []
    for gpu in traced:
        reasons = dict.fromkeys(reason for sample in gpu.traces for reason in sample.reasons or ())
        cells = [_course(values[gpu.index, name], most[name]) for name in columns]
        rows.append([str(gpu.index), *cells, ", ".join(reasons) or NOTHING])
    return ("GPU", "MHz under load", "W", "C", "clock held by"), rows


def _course(values: Sequence[float], most: float) -> str:
    if not values:
        return NOTHING
    span = f"{min(values):.0f} to {max(values):.0f}"
    return f"{span:<{SPAN}}  {_bars(values, most)}"


def _values(samples: Sequence[Sample], name: str) -> list[float]:
    return [value for sample in samples if (value := getattr(sample, name)) is not None]


def _bars(values: Sequence[float], most: float) -> str:
    """Return the course of the values as bars, from zero to the most of all GPUs."""
    if not values or most <= 0:
        return ""
    width = max(1, -(-len(values) // POINTS))
    means = [sum(part) / len(part) for part in (values[i : i + width] for i in range(0, len(values), width))]
    return "".join(BARS[min(len(BARS) - 1, int(len(BARS) * max(0.0, mean) / most))] for mean in means)


def _last(report: ComputeReport) -> str:
    mark = simulated_mark() if report.simulated else ""
    return last_line(report.verdict, report.counts, f"in {report.seconds:.1f} s", mark)
