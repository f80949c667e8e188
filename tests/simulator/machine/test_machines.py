"""Every machine is the real one: NVML, the PCI tree and the matrix that its owners saw say the same."""

import re
import shutil
import subprocess
from functools import cache
from itertools import permutations
from pathlib import Path

import pytest
import yaml

from gpucheck import simulator
from gpucheck.host import live_source
from gpucheck.host.pci import read_pci
from gpucheck.model.finding import Verdict
from gpucheck.simulator.machine import build
from gpucheck.simulator.machine.paths import common_ancestor
from gpucheck.simulator.sysfs.platform import cpu_numbers
from gpucheck.topology import build as topology
from gpucheck.topology import classify, cpu_vendor
from tests.shared import sampled
from tests.simulator.helpers import write

CASES = Path(__file__).parents[2] / "data/topo"
LEVELS = {10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
# Profile -> the real machine's case, and the case's NICs that the profile has (by position), None for no comparison
REAL = {
    "dgx1-v100": ("topo-v100sxm2x8-oneflow", [0]),
    "dgx2-v100": ("topo-dgx2-16gpu-first-rows", list(range(10))),
    "a100-sxm-x4": ("topo-a100x4-nv4-della", [0]),
    "hgx-a100-x8": ("topo-a100x8-nv12-4nic-allsys", None),
    "hgx-h100-x8": ("topo-h100x8-pix-sys-10nic", None),
    "rtx4090-x8": ("topo-4090x8-nps4-allsys-numa-shuffled", [0, 1, 2, 3]),
    "hgx-b300-x8": ("topo-b300x8-ansi-header", [*range(8), 12]),
}
# Whose cases have the CPUs of each GPU.
AFFINITIES = ("a100-sxm-x4", "dgx2-v100", "hgx-h100-x8", "rtx4090-x8")
KNOWN = {
    "oci-h100-x8": {"NV18": 28},
    "aws-p4d-x8": {"NV12": 28},
    "slingshot-a100-x4": {"NV4": 6},
    "dgx1-p100": {"NV1": 16, "SYS": 12},
    "hgx-h200-x8": {"NV18": 28},
    "hgx-b200-x8": {"NV18": 28},
    "h100-nvl-x2": {"NV12": 1},
    "gb200-x4": {"NV18": 6},
    "a6000-x4-nvlink": {"NV4": 2, "NODE": 4},
    "l40s-x4": {"NODE": 2, "SYS": 4},
    "mixed-x4": {"NV4": 1, "NODE": 5},
    "a100-mig-x8": {"NV12": 28},
    "p100-pcie-x2": {"PIX": 1},
    "p100-pcie-x2-sys": {"SYS": 1},
    "rtx3090-x2-nvlink": {"NV4": 1},
    "rtx4090-x2": {"PHB": 1},
    "rtx5090-x2": {"PHB": 1},
    "rtx5090-x8": {"NODE": 12, "SYS": 16},
    "rtx-pro-6000-x8": {"PIX": 4, "NODE": 8, "SYS": 16},
    "gb300-x4": {"NV18": 6},
    "a100-pcie-x2-nvlink": {"NV12": 1},
    "a100-pcie-x8": {"PIX": 4, "NODE": 8, "SYS": 16},
}


def third(number, _):
    """Each third is in make test, all are in make test-more."""
    return number % 3 == 0


@cache
def machine(name):
    return build(simulator.load(name), simulator.load(name).driver.state())


@pytest.fixture
def seen(activate):
    """The matrix that gpucheck makes of the profile, with every function of its bus."""

    def seen(name):
        activate(name)
        host = live_source(isolated=False, deadline_s=20)
        reading = host.read("nvml").nvml
        return reading, topology(reading, host.read("pci").pci, simulated=True)

    return seen


@pytest.mark.parametrize("name", simulator.profile_names())
def test_nvml_and_the_bridge_chains_say_the_same(tmp_path, name):
    """Two ways to the class of a pair that share no code, for every pair of GPUs."""
    functions = {device.bus_id: device for device in read_pci(write(tmp_path, name) / "root")}
    for a, b in permutations(machine(name).gpus, 2):
        chains = classify(functions[a.function.bus_id], functions[b.function.bus_id])
        assert LEVELS[common_ancestor(machine(name), a, b)] == chains


@pytest.mark.parametrize("name", sorted(REAL))
def test_matrix_is_that_of_the_real_machine(seen, name):
    case = yaml.safe_load((CASES / f"{REAL[name][0]}.yml").read_text())
    reading, view = seen(name)

    assert [list(row) for row in view.matrix] == case["matrix"]
    assert [finding for finding in view.findings if finding.verdict is not Verdict.SKIP] == []
    if REAL[name][1] is not None:
        rows = list(zip(*(nic.classes for nic in view.nics), strict=True))
        for row, real in zip(rows, case["nics"]["gpu_to_nic"], strict=True):
            if None not in real:
                assert [row[nic] for nic in REAL[name][1]] == real
    if name in AFFINITIES:
        known = [(gpu.cpu_affinity, cpus) for gpu, cpus in zip(reading.gpus, case["cpu_affinity"], strict=True) if cpus]
        assert known
        assert all(mine == real for mine, real in known)
        if case["numa_affinity"] and case["numa_affinity"][0]:
            assert [str(gpu.numa_node) for gpu in reading.gpus] == case["numa_affinity"]


@pytest.mark.parametrize("name", sampled(sorted(KNOWN), third))
def test_pairs_are_those_that_the_product_has(seen, name):
    _, view = seen(name)
    counts = {}
    for pair in view.pairs:
        counts[pair.cls] = counts.get(pair.cls, 0) + 1

    assert counts == KNOWN[name]


def test_every_machine_with_two_gpus_is_compared_with_something():
    """A profile that you add needs its answer here."""
    several = {name for name in simulator.profile_names() if len(machine(name).gpus) > 1}

    assert several == REAL.keys() | KNOWN.keys()


@pytest.mark.parametrize("name", sampled(simulator.profile_names(), third))
def test_processors_are_named_as_the_topology_room_knows_them(name, activate):
    """One line of /proc/cpuinfo a CPU, and every CPU of every node among them."""
    profile = simulator.load(name)
    root = activate(name) / "root"
    text = (root / "proc/cpuinfo").read_text()

    assert text.count("processor\t:") == sum(len(cpu_numbers(cpus)) for cpus in profile.numa_nodes)
    if profile.arch == "x86_64":
        assert cpu_vendor(text) is not None
    assert (root / "proc/sys/kernel/arch").read_text() == f"{profile.arch}\n"


def test_gpu_memory_is_a_node_without_processors(activate):
    root = activate("gb200-x4") / "root"
    nodes = root / "sys/devices/system/node"

    assert (nodes / "online").read_text() == "0,1,2,10,18,26\n"
    assert (nodes / "has_cpu").read_text() == "0,1\n"
    assert (nodes / "node10/cpulist").read_text() == "\n"
    assert "for aarch64" in (root / "proc/driver/nvidia/version").read_text()


def test_instances_have_their_access_files_and_nodes(activate):
    root = activate("a100-mig-x8") / "root"
    access = root / "proc/driver/nvidia/capabilities/gpu1/mig/gi2/ci0/access"
    minor = re.match(r"DeviceFileMinor: (\d+)\n", access.read_text())

    assert minor
    assert (root / f"dev/nvidia-caps/nvidia-cap{minor[1]}").exists()
    assert len(list(root.glob("proc/driver/nvidia/capabilities/gpu2/mig/gi*"))) == 7


def test_machine_without_an_iommu_shows_neither_groups_nor_units(activate):
    root = activate("p100-pcie-x2") / "root"

    assert not (root / "sys/kernel/iommu_groups").exists()
    assert not (root / "sys/class/iommu").exists()


@pytest.mark.parametrize(("name", "unit"), [("hgx-h100-x8", "dmar0"), ("hgx-a100-x8", "ivhd0"), ("gb200-x4", "smmu3.")])
def test_units_bear_the_name_that_their_vendors_driver_gives(activate, name, unit):
    units = [path.name for path in (activate(name) / "root/sys/class/iommu").iterdir()]

    assert any(one.startswith(unit) for one in units)
    assert len(units) == len(simulator.load(name).roots)


@pytest.fixture
def lspci(tmp_path):
    if shutil.which("lspci") is None:
        pytest.skip("pciutils is not installed")

    def lspci(name, *arguments, faults=()):
        where = f"sysfs.path={write(tmp_path / 'm', name, faults=faults, software=True)}/root/sys/bus/pci"
        command = ["lspci", "-A", "linux-sysfs", "-O", where, "-D", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    return lspci


def test_lspci_reads_links_isolation_errors_and_the_bar(lspci):
    """The same configuration space that the real tool decodes with root's rights."""
    text = lspci("hgx-h100-x8", "-vvv", faults=["acs-redirect:bus_id=0000:17:00.0", "pcie-width:gpu=0,width=8"])
    blocks = {block[:12]: block for block in text.split("\n\n")}
    gpu, port, root = blocks["0000:19:00.0"], blocks["0000:17:00.0"], blocks["0000:15:01.0"]

    assert "Express (v2) Endpoint" in gpu
    assert "LnkCap:\tPort #0, Speed 32GT/s, Width x16" in gpu
    assert re.search(r"LnkSta:\tSpeed 32GT/s.*Width x8", gpu)
    assert "BAR 1: current size: 128GB" in gpu
    assert "Express (v2) Downstream Port" in port
    assert "Express (v2) Root Port" in root
    assert "ACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-" in port
    assert "ACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir-" in root
    assert "Advanced Error Reporting" in gpu
    assert "Kernel driver in use: nvidia" in gpu


@pytest.mark.parametrize("name", ["dgx2-v100", "hgx-b200-x8", "gb200-x4", "t4-vm-x1"])
def test_lspci_finds_every_function_and_its_bridge(lspci, name):
    """-PP prints the way to each function by the bus numbers in the bridges' configuration space."""
    ways = {line.split(" ")[0] for line in lspci(name, "-PP", "-n").splitlines()}
    wanted = set()
    for function in machine(name).functions.values():
        chain = [bridge.bus_id for bridge in machine(name).chain(function.bus_id)]
        way = [*chain, function.bus_id]
        wanted.add("/".join([way[0], *(one[5:] for one in way[1:])]))

    assert ways == wanted


def test_trained_link_of_a_guest_shows_what_its_host_hides():
    gpu = machine("t4-vm-x1").gpus[0].function

    assert (gpu.generation, gpu.width, gpu.max_width) == (3, 8, 16)
