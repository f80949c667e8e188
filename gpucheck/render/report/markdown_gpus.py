"""The GPUs of a rig card: links under load, memory and power, one row for equal GPUs."""

from collections.abc import Iterator

from gpucheck.model import Report, Verdict
from gpucheck.model.diagnosis.observations import UnderLoad
from gpucheck.model.record import GpuRecord
from gpucheck.render.copies.measured import Copies
from gpucheck.render.markdown import Markdown, table
from gpucheck.render.report.gpus import memory_errors, record
from gpucheck.render.topology.boxes import describe_link
from gpucheck.render.words import ranges

ROWS = 6
HEADER = ("GPU", "NUMA", "PCIe link", "NVLinks", "memory", "memory errors", "power limit", "clocks throttled")


def section(report: Report, copies: Copies | None, page: Markdown) -> Iterator[str]:
    """Yield the table; nothing if the report names no GPU."""
    rows: dict[tuple[str, ...], list[int]] = {}
    nodes = {gpu.index: gpu.numa_node for gpu in report.topology.gpus} if report.topology else {}
    for index, cells in _rows(report, copies):
        rows.setdefault(cells, []).append(index)
    if not rows:
        return
    shown = list(rows.items())
    lines = [[_gpus(found), _nodes(nodes, found), *map(page.text, cells)] for cells, found in shown[:ROWS]]
    if len(shown) > ROWS:
        rest = sorted(index for _, found in shown[ROWS:] for index in found)
        lines.append([f"{_gpus(rest)}: in the JSON report", *([""] * (len(HEADER) - 1))])
    yield "### Links under load, memory, power"
    yield ""
    yield from table(HEADER, lines)


def _gpus(found: list[int]) -> str:
    names = ranges(found).replace(",", ", ")
    return names if len(found) == 1 else f"{names} ({len(found)} GPUs)"


def _nodes(nodes: dict[int, int | None], found: list[int]) -> str:
    """The NUMA nodes of these GPUs; GPUs that differ by nothing else are one row."""
    return ranges(sorted({node for node in map(nodes.get, found) if node is not None})).replace(",", ", ")


def _rows(report: Report, copies: Copies | None) -> Iterator[tuple[int, tuple[str, ...]]]:
    """NVML's index and the cells of each GPU."""
    topology, kept = report.topology, {gpu.bus_id: gpu for gpu in record(report).gpus}
    loaded = _loaded(copies)
    for gpu in topology.gpus if topology else ():
        bus_id = gpu.pci_bus_id or ""
        one, load = kept.get(bus_id), loaded.get(bus_id)
        yield (
            gpu.index,
            (
                _pcie(one, load),
                _nvlinks(one),
                _memory(one),
                memory_errors(one),
                _power(report, bus_id, one),
                _throttled(report, bus_id, load),
            ),
        )


def _loaded(copies: Copies | None) -> dict[str, UnderLoad]:
    if copies is None:
        return {}
    names = {place: device.bus_id or "" for place, device in enumerate(copies.devices)}
    return {names[one.gpu]: one for one in copies.observations.measured.under_load if one.gpu in names}


def _pcie(one: GpuRecord | None, load: UnderLoad | None) -> str:
    """``Gen5 x8 of Gen5 x16 under load``; an idle link lowers its generation to save power."""
    if load is not None and (load.gen or load.width):
        return _of((load.gen, load.width), (load.max_gen, load.max_width), "under load")
    if one is None:
        return ""
    link = one.pcie
    return _of((link.generation, link.width), (link.max_generation, link.max_width), "not under load")


def _of(now: tuple[int | None, int | None], most: tuple[int | None, int | None], when: str) -> str:
    able = "" if now == most or not any(most) else f" of {describe_link(*most)}"
    return f"{describe_link(*now)}{able}, {when}" if any(now) else "not known"


def _nvlinks(one: GpuRecord | None) -> str:
    return f"{one.active_nvlinks} of {len(one.nvlinks)} active" if one and one.nvlinks else ""


def _memory(one: GpuRecord | None) -> str:
    if one is None or one.memory_mib is None:
        return ""
    ecc = "" if one.ecc is None else ", ECC on" if one.ecc else ", ECC off"
    return f"{one.memory_mib:,} MiB{ecc}"


def _power(report: Report, bus_id: str, one: GpuRecord | None) -> str:
    if one is None or one.power_limit_w is None:
        return ""
    lowered = (f.wanted for f in report.findings if f.check == "power-limit" and f.subject == f"gpu:{bus_id}")
    default = next((value for value in lowered if isinstance(value, int | float)), None)
    return f"{one.power_limit_w:g} W" + (f" of {default:g} W" if default is not None else "")


def _throttled(report: Report, bus_id: str, load: UnderLoad | None) -> str:
    if load is not None and load.throttled is not None:
        return f"{', '.join(load.throttled)}, under load" if load.throttled else "no, under load"
    seen = [f for f in report.findings if f.check == "throttle" and f.subject == f"gpu:{bus_id}"]
    if not seen:
        return ""
    return "no, not under load" if all(f.verdict is Verdict.PASS for f in seen) else str(seen[0].seen or seen[0].why)
