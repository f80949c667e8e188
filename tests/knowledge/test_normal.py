"""The table of usual rates: each range is that of the public machines that it names."""

from pathlib import Path

import pytest
import yaml

from gpucheck.knowledge import find_gpu, gpus_of_family
from gpucheck.knowledge.compute import normals

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
