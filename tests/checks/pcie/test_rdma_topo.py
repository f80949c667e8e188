"""rdma_topo of rdma-core as a second judge of ACS: the same simulated machine, and the bridges that each finds wrong.

rdma_topo also asks for bits that decide nothing about the way of the data: source validation, root ports above a switch
in which the traffic turns around, and ports beyond those that GPU and card share. Those are not compared.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from gpucheck import simulator
from gpucheck.checks.pcie import acs
from gpucheck.host.pci import read_pci
from gpucheck.topology.pcie import bridges_between, of_data_direct
from tests.checks.judging import judge
from tests.fakes import facts

DATA = Path(__file__).parents[2] / "data" / "rdma_topo.yml"
CASES = yaml.safe_load(DATA.read_text(encoding="utf-8"))["rows"]
NAMES = [f"{row['profile']}-{number}" for number, row in enumerate(CASES)]
# GPUCHECK_RDMA_TOPO=path: the program itself, kernel-boot/rdma_topo of a recent rdma-core.
PROGRAM = os.environ.get("GPUCHECK_RDMA_TOPO") or shutil.which("rdma_topo")


def machine(folder, row):
    profile = simulator.load(row["profile"])
    devices = tuple(replace(one, acs=row["acs"].get(one.bus_id, one.acs)) for one in profile.devices)
    simulator.write_machine(simulator.Recipe(profile=replace(profile, devices=devices), driver=None), folder)
    return folder / "root"


@pytest.mark.parametrize("row", CASES, ids=NAMES)
def test_the_same_bridges_are_wrong(tmp_path, row):
    pci = read_pci(machine(tmp_path / "machine", row))
    evaluated = {*of_data_direct(pci)} or {bridge.bus_id for bridge in bridges_between(pci).every}

    (finding,) = judge(acs, facts(pci=pci))

    named = {bus_id for bus_id in evaluated if bus_id in f"{finding.wanted} {finding.values.get('bridges')}"}
    assert named == evaluated.intersection(row["wrong"])


@pytest.mark.more
@pytest.mark.skipif(PROGRAM is None, reason="rdma_topo is not installed (rdma-core 62 or later)")
@pytest.mark.parametrize("row", CASES, ids=NAMES)
def test_the_program_finds_what_was_recorded(tmp_path, row):
    devices = machine(tmp_path / "machine", row) / "sys/bus/pci/devices"
    for number, kinds in enumerate(zip(of_kind(devices, "0x2100"), of_kind(devices, "0x1023"), strict=False)):
        for function in kinds:  # the DMA function and the card that it belongs to
            (function / "vpd").write_bytes(vital_product_data(f"card-{number}"))

    ran = subprocess.run(
        [sys.executable, PROGRAM, "check"],
        env={**os.environ, "RDMA_TOPO_DEVDIR": str(devices)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stderr == ""
    wrong = [line.split(" has ")[0].split()[-1] for line in ran.stdout.splitlines() if line.startswith("FAIL\tACS")]
    assert wrong == row["wrong"]


def of_kind(devices, device_id):
    return sorted(one for one in devices.iterdir() if (one / "device").read_text().strip() == device_id)


def vital_product_data(v3):
    """Format: PCI 3.0, appendix I, with the field V3 of NVIDIA's cards."""
    fields = b"".join(name + bytes([len(value)]) + value for name, value in ((b"SN", b"1"), (b"V3", v3.encode())))
    return b"\x82\x04\x00card" + b"\x90" + len(fields).to_bytes(2, "little") + fields + b"\x78"
