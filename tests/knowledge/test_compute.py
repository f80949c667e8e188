"""Ceilings: the table of operations per clock against the rates that NVIDIA publishes."""

import pytest

from gpucheck.knowledge.compute import (
    ceiling_tflops,
    compute_table,
    memory_ceiling_gb_s,
    operations_per_clock,
)
from gpucheck.simulator.data import HERE
from gpucheck.simulator.machine.gpu_model import gpu_model

TABLE = compute_table()


@pytest.mark.parametrize("row", TABLE.published, ids=lambda row: row.gpu)
def test_the_table_reproduces_published_rates(row):
    (operations,) = (o for o in TABLE.operations_per_clock if (o.capability, o.cls) == (row.capability, row.cls))
    for type_, published in row.tflops.items():
        assert ceiling_tflops(getattr(operations, type_), row.multiprocessors, row.mhz) == pytest.approx(
            published, rel=0.015
        ), type_


def test_rows_are_distinct_and_types_have_a_least_part():
    keys = [(row.capability, row.cls) for row in TABLE.operations_per_clock]

    assert len(keys) == len(set(keys))
    assert set(operations_per_clock("9.0", "NVIDIA H100 80GB HBM3")) == set(TABLE.least_part.matrix)


def test_a_geforce_board_has_half_the_rate_of_its_sister():
    geforce = operations_per_clock("8.6", "NVIDIA GeForce RTX 3090")
    workstation = operations_per_clock("8.6", "NVIDIA RTX A6000")

    assert workstation["bf16"] == 2 * geforce["bf16"]
    assert workstation["int8"] == geforce["int8"]


@pytest.mark.parametrize("capability", [None, "3.7", "99.0"])
def test_an_unknown_capability_has_no_ceiling(capability):
    assert operations_per_clock(capability, "NVIDIA H100 80GB HBM3") == {}


# NVIDIA's datasheets, in GB/s.
MEMORY = {"a100-sxm4-40gb": 1555, "h100-sxm5-80gb": 3350, "l40s": 864, "t4": 320, "rtx3090": 936, "p100-pcie-16gb": 732}


@pytest.mark.parametrize(("name", "published"), MEMORY.items())
def test_bus_width_times_data_rate_is_the_published_bandwidth(name, published):
    model = gpu_model(name)

    assert memory_ceiling_gb_s(model.memory_bus_bits, model.clocks_mhz[1]) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("name", sorted(path.stem for path in (HERE / "gpus").glob("*.yml")))
def test_every_simulated_model_can_compute(name):
    model = gpu_model(name)

    assert model.multiprocessors
    assert model.memory_bus_bits
    assert operations_per_clock(model.compute_capability, model.name)
