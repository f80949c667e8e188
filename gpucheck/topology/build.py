"""The topology of a host: NVML's view, compared with the bridge chains in sysfs."""

from gpucheck.model.host import Host, NotRecorded
from gpucheck.model.host.hardware import Gpu, Pair, PciDevice, TopologyGpu
from gpucheck.model.host.readings import NvmlFailure, NvmlReading
from gpucheck.model.topology import Topology
from gpucheck.topology.expected import expected, narrowest
from gpucheck.topology.nvlink.ports import reduced_findings as reduced_nvlinks
from gpucheck.topology.pair_findings import pair_findings
from gpucheck.topology.pcie.acs import bridges_between, redirect_finding
from gpucheck.topology.pcie.cpu import Cpu, identify
from gpucheck.topology.pcie.nics import network_cards
from gpucheck.topology.view import DISTANCE, View
from gpucheck.topology.wiring import Paths, reduced_findings, wire


def of(host: Host) -> Topology | None:
    """Return the topology of a host from all that is known of it, None if NVML cannot be read.

    Raises NotRecorded where a recording lacks NVML or the PCI functions.
    """
    reading = host.nvml()
    if isinstance(reading, NvmlFailure):
        return None
    simulated, virtual = host.simulation() is not None, host.system().virtual
    return build(reading, host.pci(), simulated, cpu=cpu_of(host), virtual=virtual)


def cpu_of(host: Host) -> Cpu | None:
    """Return the CPU of a host, None if it is unknown or an older recording lacks it."""
    try:
        return identify(host.read_text("/proc/cpuinfo"))
    except NotRecorded:
        return None


def build(
    reading: NvmlReading,
    pci: tuple[PciDevice, ...],
    simulated: bool,
    *,
    cpu: Cpu | None = None,
    virtual: str | None = None,
) -> Topology:
    """Return the matrix as nvidia-smi topo -m prints it, expectations by pair, and what is wrong with the paths.

    A cell is NV# where NVLinks join the pair, else NVML's common ancestor, else the class from sysfs, else None.
    pci: GPUs by bus id, any bridges on their way (their links narrow the expectation) and network cards.
    virtual: the hypervisor where there is one, whose PCI links are made up.
    """
    devices = {device.bus_id.lower(): device for device in pci}
    view = View(reading, devices)
    count = len(reading.gpus)
    cells = {pair: view.cell(*pair) for pair in view.pairs}
    matrix = tuple(tuple("X" if i == j else cells[min(i, j), max(i, j)] for j in range(count)) for i in range(count))
    nics = network_cards(reading.gpus, devices)
    wiring = wire(reading.gpus, nics, devices, cpu)
    paths = Paths(wiring)
    redirect = None if virtual else redirect_finding(bridges_between(pci))
    return Topology(
        simulated=simulated,
        source="nvml",
        gpus=tuple(_named(gpu, devices) for gpu in reading.gpus),
        matrix=matrix,
        nics=nics,
        pairs=tuple(_pair(view, pair, cls, paths, cpu) for pair, cls in cells.items()),
        findings=(
            *pair_findings(view),
            *reduced_nvlinks(reading, virtual),
            *reduced_findings(wiring, virtual),
            *((redirect,) if redirect else ()),
        ),
        wiring=wiring,
    )


def _pair(view: View, at: tuple[int, int], cls: str | None, paths: Paths, cpu: Cpu | None) -> Pair:
    one, other = view.gpus(*at)
    if cls not in DISTANCE:
        return Pair(a=one.index, b=other.index, cls=cls, expected=expected(cls, one, other, (), cpu))
    labels = f"GPU{one.index}", f"GPU{other.index}"
    hops = paths.between(*labels)
    return Pair(
        a=one.index,
        b=other.index,
        cls=cls,
        expected=None if view.refused(*at, cls) else expected(cls, one, other, hops, cpu),
        narrowest=narrowest(hops),
        reduced=paths.reduced(*labels),
    )


def _named(gpu: Gpu, devices: dict[str, PciDevice]) -> TopologyGpu:
    device = devices.get(gpu.pci_bus_id.lower())
    numa = gpu.numa_node if gpu.numa_node is not None else device.numa_node if device else None
    return TopologyGpu(
        index=gpu.index,
        name=gpu.name,
        uuid=gpu.uuid,
        pci_bus_id=gpu.pci_bus_id,
        compute_capability=gpu.compute_capability,
        numa_node=numa,
        cpu_affinity=gpu.cpu_affinity,
        numa_affinity=None if numa is None else str(numa),
    )
