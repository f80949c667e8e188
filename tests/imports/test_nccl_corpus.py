"""NCCL topology files of real machines, and of vendors for NCCL_TOPO_FILE, with their right reading."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpucheck.imports import read
from gpucheck.topology import with_expectations

FOLDER = Path(__file__).parent.parent / "data" / "nccl"
CASES: list[dict[str, Any]] = [
    yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.yml"))
]
VENDORS = ("xml-aws-p4de-24xl", "xml-azure-ndv4")


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_file_reads_to_its_known_matrix(case):
    topology = read(case["raw"])

    assert [gpu.pci_bus_id for gpu in topology.gpus] == case["expect"]["bus_ids"]
    assert [list(row) for row in topology.matrix] == case["expect"]["matrix"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_file_of_a_vendor_lists_no_nvlinks_and_expects_nothing(case):
    """NCCL queries NVML for the NVLinks of such a machine: NV12 there is PIX, NODE and SYS in the file."""
    topology = with_expectations(read(case["raw"]))
    vendor = case["id"] in VENDORS

    assert [f.seen for f in topology.findings].count("NVLinks not listed") == vendor
    assert {pair.expected is None for pair in topology.pairs} == {vendor}
