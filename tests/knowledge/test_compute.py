"""Ceilings: the table of operations per clock against the rates that NVIDIA publishes."""

from pathlib import Path

import pytest
import yaml

from gpucheck.knowledge import find_gpu, gpus_of_family
from gpucheck.knowledge.compute import (
    ceiling_tflops,
    compute_table,
    memory_ceiling_gb_s,
    normals,
    operations_per_clock,
    operations_row,
)
from gpucheck.simulator.machine.profile import gpu_model

TABLE = compute_table()


@pytest.mark.parametrize("row", TABLE.published, ids=lambda row: row.gpu)
def test_the_table_reproduces_published_rates(row):
    operations = operations_per_clock(row.capability, row.gpu)
    for type_, published in row.tflops.items():
        ceiling = ceiling_tflops(operations[type_], row.multiprocessors, row.mhz)
        assert ceiling == pytest.approx(published, rel=0.015), type_


def test_rows_are_distinct_and_each_has_a_data_sheet():
    keys = [(row.capability, row.cls, row.names) for row in TABLE.operations_per_clock]
    proven = [operations_row(row.capability, row.gpu) for row in TABLE.published]

    assert len(keys) == len(set(keys))
    assert [row.names for row in TABLE.operations_per_clock if row not in proven] == [("RTX PRO 6000D*",)]
    assert set(operations_per_clock("9.0", "NVIDIA H100 80GB HBM3")) == set(TABLE.least_part.matrix)


@pytest.mark.parametrize(
    ("capability", "name", "like"),
    [
        ("8.9", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090"),
        ("7.5", "NVIDIA GeForce GTX 1650 with Max-Q Design", "NVIDIA GeForce GTX 1660 Ti"),
        ("9.0", "NVIDIA H20-3e", "NVIDIA H20"),
        ("8.9", "NVIDIA L2", "NVIDIA L4"),
    ],
)
def test_boards_without_a_row_of_their_own_have_that_of_their_like(capability, name, like):
    assert operations_per_clock(capability, name) == operations_per_clock(capability, like) != {}


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ("12.0", "NVIDIA RTX PRO 6000D Blackwell"),
        ("9.0", "NVIDIA PG520-230"),
        ("8.9", "NVIDIA RTX 5000 Ada Generation Laptop GPU"),
        ("8.0", "GRID A100-10C"),
        *((capability, "NVIDIA H100 80GB HBM3") for capability in (None, "3.7", "99.0")),
    ],
)
def test_an_unknown_board_or_capability_has_no_ceiling(capability, name):
    """Boards of one architecture differ by 2 to 4 times."""
    assert operations_per_clock(capability, name) == {}


# NVIDIA's datasheets, in GB/s.
MEMORY = {"a100-sxm4-40gb": 1555, "h100-sxm5-80gb": 3350, "l40s": 864, "t4": 320, "rtx3090": 936, "p100-pcie-16gb": 732}


@pytest.mark.parametrize(("name", "published"), MEMORY.items())
def test_bus_width_times_data_rate_is_the_published_bandwidth(name, published):
    model = gpu_model(name)

    assert memory_ceiling_gb_s(model.memory_bus_bits, model.clocks_mhz[1]) == pytest.approx(published, rel=0.01)


MATRICES = {
    "copy": ("p2p_uni_gb_s",),
    "copy both ways": ("p2p_bidir_gb_s",),
    "copy without P2P": ("staged_uni_gb_s", "p2p_uni_gb_s"),
    "copy both ways without P2P": ("staged_bidir_gb_s", "p2p_bidir_gb_s"),
}
MACHINES = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in sorted(Path("tests/data/perf").glob("*.yml"))]


def published(row):
    """Every number of the quantity on the machines of the row's sources, by source."""
    found = {}
    for machine in MACHINES:
        if machine["source"] in row.sources:
            found.setdefault(machine["source"], []).extend(_numbers(machine.get("observations", {}), row))
    return found


def _numbers(observed, row):
    measured = observed.get("measured", {})
    if row.what == "all_reduce":
        runs = measured.get("collectives", [])
        return [run["busbw_gb_s"] for run in runs if run["ranks"] == row.gpus and run.get("op") in (row.what, None)]
    by_class = [value for values in measured.get("by_class", {}).values() for value in values]
    matrix = next((measured[key] for key in MATRICES[row.what] if key in measured), [])
    return [value for line in matrix for value in line if value] + (by_class if row.what == "copy" else [])


@pytest.mark.parametrize("row", normals(), ids=lambda row: f"{row.gpu}, {row.path}, {row.what}, {row.gpus}")
def test_a_range_is_what_its_sources_published(row):
    found = published(row)
    low, high = row.gb_s

    assert set(found) == set(row.sources)
    for source, numbers in found.items():
        assert any(low <= number + 0.01 and number - 0.01 <= high for number in numbers), source
    every = [round(number, 2) for numbers in found.values() for number in numbers]
    assert low in every
    assert high in every
    assert find_gpu(row.gpu) or gpus_of_family(row.gpu), "the model is not in the tables"


def test_rows_of_a_model_by_its_names():
    assert {row.gpu for row in normals("RTX 4090")} == {"GeForce RTX 4090"}
    assert {row.gpu for row in normals("NVIDIA H100 80GB HBM3")} == {"NVIDIA H100 SXM5"}
    assert {row.gpu for row in normals("H100")} == {"NVIDIA H100 SXM5", "NVIDIA H100 PCIe"}
    assert normals("Tesla T4") == ()
