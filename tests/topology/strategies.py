"""Random machines: topologies as an importer reads them, PCI trees, and NVLink graphs."""

from hypothesis import strategies as st
from msgspec.structs import replace

from gpucheck.model import Gpu, Nic, NvLink, NvmlReading, Pair, PciDevice, Topology, TopologyGpu
from tests.topology.servers import GPU_CLASS, function

PCIE = ("PIX", "PXB", "PHB", "NODE", "SYS")
classes = st.sampled_from(PCIE) | st.integers(1, 36).map(lambda links: f"NV{links}")
cpu_lists = st.lists(st.integers(0, 600), min_size=1, max_size=4, unique=True).map(
    lambda cpus: ",".join(f"{cpu}-{cpu + 7}" for cpu in sorted(cpus))
)
nic_names = st.from_regex(r"mlx5_[0-9]{1,2}", fullmatch=True) | st.just("rocep49s0") | st.just("mlx5_bond_0")


@st.composite
def pasted(draw):
    """What nvidia-smi topo -m can print, and what its importer makes of it."""
    count = draw(st.integers(1, 16))
    cells = {(i, j): draw(classes) for i in range(count) for j in range(i + 1, count)}
    matrix = tuple(tuple("X" if i == j else cells[min(i, j), max(i, j)] for j in range(count)) for i in range(count))
    numa = draw(st.lists(st.none() | st.integers(0, 7), min_size=count, max_size=count))
    cpus = draw(st.lists(st.none() | cpu_lists, min_size=count, max_size=count))
    gpu_numa = draw(st.just(None) | st.just("N/A") | st.integers(2, 9).map(str))
    gpus = tuple(
        TopologyGpu(
            index=i,
            numa_node=numa[i],
            cpu_affinity=cpus[i],
            numa_affinity=None if numa[i] is None else str(numa[i]),
            gpu_numa_id=gpu_numa,
        )
        for i in range(count)
    )
    names = draw(st.lists(nic_names, max_size=6, unique=True))
    by_number, with_rows = draw(st.booleans()), draw(st.booleans())
    cards = range(len(names))
    near = {(i, j): draw(st.sampled_from(PCIE)) for i in cards for j in cards if i < j} if with_rows else {}
    nics = tuple(
        Nic(
            label=f"NIC{i}" if by_number else name,
            name=name,
            classes=tuple(draw(st.lists(st.sampled_from(PCIE), min_size=count, max_size=count))),
            peers=tuple("X" if i == j else near[min(i, j), max(i, j)] for j in cards) if with_rows else (),
        )
        for i, name in enumerate(names)
    )
    pairs = tuple(Pair(a=i, b=j, cls=cls) for (i, j), cls in cells.items())
    return Topology(source="nvidia-smi-topo", gpus=gpus, matrix=matrix, nics=nics, pairs=pairs)


@st.composite
def pci_trees(draw):
    """GPUs at the leaves of a random forest of bridges, one tree a root bus, NUMA nodes told or not."""
    devices = []
    for root in range(draw(st.integers(1, 3))):
        numa = draw(st.none() | st.integers(0, 1))
        bridges = [()]
        for number in range(draw(st.integers(0, 6))):
            bridges.append((*draw(st.sampled_from(bridges)), f"0000:{root}{number:x}:01.0"))
        devices += [
            function(
                f"0000:{root}{number:x}:00.0", GPU_CLASS, numa, draw(st.sampled_from(bridges)), root=f"pci0000:{root}0"
            )
            for number in range(draw(st.integers(0, 4)))
        ]
    return tuple(devices)


@st.composite
def switch_trees(draw):
    """Functions behind real switches, and by port which switch it belongs to.

    A root port leads to a device or to a switch's upstream port; each of its downstream ports to a device or the next
    switch. A device may have two functions on its bus.
    """
    devices: list[PciDevice] = []
    switch_of: dict[str, str] = {}
    buses = iter(range(1, 1 << 16))

    def below(path, root, numa, depth):
        if depth < 3 and draw(st.booleans()):
            name, up = f"switch{len(switch_of)}", bus_id()
            switch_of[up] = name
            for _ in range(draw(st.integers(1, 3))):
                down = bus_id()
                switch_of[down] = name
                below((*path, up, down), root, numa, depth + 1)
            return
        bus = bus_id()
        gpu = function(bus, GPU_CLASS, numa, path)
        for number in range(draw(st.integers(1, 2))):
            devices.append(replace(gpu, bus_id=f"{bus[:-1]}{number}", root=root))  # noqa: PERF401 - recursive

    def bus_id():
        number = next(buses)
        return f"{number >> 8:04x}:{number & 255:02x}:00.0"

    for root in range(draw(st.integers(1, 3))):
        numa = draw(st.integers(0, 1))
        for _ in range(draw(st.integers(1, 2))):
            below((bus_id(),), f"0000:{root}0", numa, 0)
    return tuple(devices), switch_of


@st.composite
def machines(draw):
    """A reading and its PCI tree: random links, also ones whose other end says something else."""
    pci = draw(pci_trees())
    ids = [device.bus_id for device in pci]
    kinds = st.sampled_from(["gpu", "switch", "unknown", None])
    link = st.builds(
        NvLink,
        link=st.integers(0, 17),
        active=st.booleans(),
        remote_kind=kinds,
        remote_bus_id=st.none() | (st.sampled_from(ids) if ids else st.none()),
    )
    gpus = tuple(
        Gpu(
            index=i,
            name="NVIDIA H100",
            uuid=f"GPU-{i}",
            pci_bus_id=bus_id,
            device_id="2330",
            compute_capability=draw(st.sampled_from(["9.0", "8.9", None])),
            nvlinks=tuple(draw(st.lists(link, max_size=4))),
        )
        for i, bus_id in enumerate(ids)
    )
    row = st.lists(st.none() | st.sampled_from(PCIE), min_size=len(ids), max_size=len(ids)).map(tuple)
    ancestors = draw(st.just(()) | st.lists(row, min_size=len(ids), max_size=len(ids)).map(tuple))
    return NvmlReading(
        driver_version="580.1", nvml_version="13", cuda_version=None, gpus=gpus, ancestors=ancestors
    ), pci
