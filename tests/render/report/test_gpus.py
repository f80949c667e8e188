"""The table of GPUs: what each is, its state, and a verdict at the cell that a check evaluated."""

import click
import pytest
from msgspec.structs import replace

from gpucheck.model import Verdict
from gpucheck.model.host.hardware import GpuProcess, Health, NvLink, PcieLink
from gpucheck.model.record import RECORD, stored
from gpucheck.render.blocks import Cell, cells
from gpucheck.render.formats import render
from gpucheck.render.subjects.report import gpu_section
from tests.machines import h100, whole_host
from tests.render.reports import finding, report, sick
from tests.topology.servers import topology

MACHINE = topology(2)
BUS = tuple(gpu.pci_bus_id for gpu in MACHINE.gpus)


LINKS = (NvLink(link=0, active=True), NvLink(link=1, active=False))


def gpu(nvlinks=LINKS, **health):
    told = Health(
        serial="1650521012345", temperature_c=41, temperature_slowdown_c=87, power_w=112.34, power_limit_w=700.0,
        sm_clock_mhz=1980, max_sm_clock_mhz=1980, memory_used_bytes=4 << 20, ecc=True, processes=(),
    )  # fmt: skip
    return replace(
        h100(0),
        pci_bus_id=BUS[0],
        memory_bytes=81559 << 20,
        pcie=PcieLink(generation=1, width=16, max_generation=5, max_width=16),
        nvlinks=nvlinks,
        health=replace(told, **health),
    )


def rows(made):
    """Each row by the titles of its columns."""
    ((table,),) = (one.blocks for one in gpu_section(made))
    return [dict(zip((column.title for column in table.columns), cells(row), strict=False)) for row in table.rows]


def table(*findings, **health):
    kept = stored(whole_host(gpu(**health)), None)
    return rows(report(*findings, topology=MACHINE, measurements={RECORD: kept}))


@pytest.mark.parametrize(
    ("label", "text", "detail"),
    [
        ("temperature", "41 \u00b0C", "slowdown at 87"),
        ("power", "112.3 W", "of 700 W"),
        ("SM clock", "1980 MHz", "of 1980 MHz"),
        ("memory used", "4 MiB", "of 81,559 MiB"),
        ("PCIe lanes", "x16", "of Gen5 x16"),
        ("NVLinks up", "1 of 2", ""),
        ("processes", "0", ""),
    ],
)
def test_state_of_a_gpu(label, text, detail):
    assert table()[0][label] == Cell(text, detail)


def test_worst_finding_marks_the_gpu_and_its_cell():
    found = table(
        finding("nvlink", f"gpu:{BUS[0]}", Verdict.WARN),
        finding("nvlink-links", f"gpu:{BUS[0]}"),
        finding("power-limit", f"gpu:{BUS[0]}", Verdict.WARN),
    )[0]

    assert (found["GPU"].verdict, found["UUID, serial"].detail) == (Verdict.FAIL, "1650521012345")
    assert [title for title, one in found.items() if one.tone == "fail"] == ["NVLinks up"]
    assert [title for title, one in found.items() if one.tone == "warn"] == ["power"]


def test_what_was_not_reported_is_a_dash():
    found = table(temperature_c=None, power_w=None, processes=None, nvlinks=(), memory_used_bytes=None)[0]

    assert [found[title].text for title in ("temperature", "power", "processes", "NVLinks up")] == ["\u2013"] * 4


def test_many_processes_are_counted():
    found = table(processes=tuple(GpuProcess(pid=n, kind="compute", name="python3") for n in range(5)))[0]

    assert found["processes"].detail == "python3 (0), python3 (1), python3 (2), 2 more processes"


def test_gpus_of_a_report_without_a_record_have_their_names():
    """An older report."""
    assert [(row["GPU"].text, row["CPUs"].text) for row in rows(sick())] == [
        (str(index), "0-63" if index < 4 else "64-127") for index in range(8)
    ]


def test_a_gpu_that_is_not_usable_has_a_row_in_its_place():
    lost = finding("inventory", "gpu:0000:ff:00.0", cause="gpu-lost", gpu_index=1)
    moved = replace(MACHINE.gpus[1], index=2)
    machine = replace(MACHINE, gpus=(MACHINE.gpus[0], moved))
    found = rows(report(lost, topology=machine))

    assert [(row["GPU"].text, row["GPU"].verdict) for row in found] == [("0", None), ("1", Verdict.FAIL), ("2", None)]
    assert found[1]["UUID, serial"].text == "not usable: gpu-lost"


@pytest.mark.parametrize(("code", "kind"), [("hardware-thermal-slowdown", "fail"), ("power-brake", "")])
def test_only_heat_marks_the_temperature(code, kind):
    throttled = finding("throttle", f"gpu:{BUS[0]}", code=f"gpu.{code}", seen="any words", cause="throttled")
    row = table(throttled)[0]

    assert row["temperature"].tone == kind
    assert row["SM clock"].tone == "fail"


def test_a_terminal_has_a_line_for_each_gpu_with_v():
    made = report(topology=MACHINE, measurements={RECORD: stored(whole_host(gpu()), None)})
    quiet, verbose = (click.unstyle(render(made, "text", verbose=verbose)) for verbose in (False, True))

    assert "temperature" not in quiet
    assert [line[:2] for line in verbose.splitlines() if "41 \u00b0C" in line or BUS[1] in line] == ["0 ", "1 "]
