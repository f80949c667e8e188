"""cuda.txt: how fast the copies of a simulated machine are, and what is wrong with them, as ``key = value``.

The numbers are worked out from its links as they are trained now (see rates.py). What the keys mean:

    version = 13000                     of CUDA, that the driver supports
    driver = 580.178.04                 of libcuda itself
    init.error = 802                    what cuInit answers
    noise, drift                        fractions: of a copy's time (standard deviation), and per 10 s of simulated time
    seed                                of the noise
    gpu.<n>.multiprocessors, gpu.<n>.copy_engines, gpu.<n>.memory_bus_bits
    host.<n>.gb_s, .links, .duplex      to and from pinned memory; PCI functions on the way; as of a pair
    pair.<a>.<b>.gb_s                   from a to b with peer access, staged_gb_s without it
    pair.<a>.<b>.latency_us, .links     least time of a copy; what it may share with others
    pair.<a>.<b>.duplex                 what is left of the rate while an end copies the other way too
    pair.<a>.<b>.damage, .stuck, .error faults
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from gpucheck.host.nvml.reading import CLASSES, P2P_CAPABILITIES, P2P_STATUS
from gpucheck.host.pci import read_pci
from gpucheck.model import Gpu, NvLink, NvmlReading, PcieLink
from gpucheck.simulator.cuda.rates import PCIE_DUPLEX, Link, MeasurementFault, describe
from gpucheck.simulator.machine import REMOTE_GPU, Machine, SimulatedGpu
from gpucheck.simulator.machine.paths import common_ancestor, p2p_status
from gpucheck.simulator.machine.profile import cuda_versions
from gpucheck.topology.pcie.cpu import identify

SYSTEM_NOT_READY = 802
QUIET = 0.001  # spread of copies on a GPU that does nothing else; without any, a number would look certain
GEFORCE = 5  # nvmlBrandType_t
OTHERWISE = 64


def copies(machine: Machine, root: Path) -> str:
    """The text of cuda.txt for the GPUs that NVML counts. root: the machine's files, already written.

    Raises ValueError for measurement faults that cannot be read.
    """
    visible = [gpu for gpu in machine.gpus if gpu.visible]
    lines = {"gpu.count": len(visible), **dict(_driver(machine, visible)), **dict(_gpus(visible))}
    lost = {place for place, gpu in enumerate(visible) if gpu.function.lost}
    reading = _reading(machine, visible)
    chosen = tuple(gpu for gpu in reading.gpus if gpu.index not in lost)
    faults = msgspec.convert(machine.surroundings.get("measurement", []), tuple[MeasurementFault, ...])
    cpuinfo = root / "proc/cpuinfo"
    cpu = identify(cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else None)
    described = describe(reading, read_pci(root), chosen, faults, cpu)
    chosen_noise = any(fault.fault == "copy-noise" for fault in faults)
    lines |= {"noise": described.noise if chosen_noise else QUIET, "drift": described.drift, "seed": described.seed}
    for gpu, rate, links in zip(chosen, described.host_gb_s, described.to_host, strict=True):
        lines |= {f"host.{gpu.index}.duplex": PCIE_DUPLEX}
        lines |= {f"host.{gpu.index}.gb_s": rate, f"host.{gpu.index}.links": " ".join(links)}
    for link in described.links:
        prefix = f"pair.{chosen[link.src].index}.{chosen[link.dst].index}"
        lines |= {f"{prefix}.{key}": value for key, value in _pair(link)}
    head = "# SIMULATED machine: what libcuda.so.1 answers here, in addition to machine.txt.\n"
    return head + "".join(f"{key} = {value}\n" for key, value in lines.items())


def _driver(machine: Machine, visible: list[SimulatedGpu]) -> Iterator[tuple[str, object]]:
    version = machine.profile.driver.version
    branch = version.partition(".")[0]
    known = cuda_versions()
    fitting = [number for number in known if branch.isdigit() and number <= int(branch)]
    yield from (("version", known[max(fitting, default=min(known))]), ("driver", version))
    # Of models that report the state of the fabric, the library reads it in machine.txt.
    if not all(gpu.fabric_up for gpu in visible if gpu.model.fabric is None):
        yield "init.error", SYSTEM_NOT_READY


def _gpus(visible: list[SimulatedGpu]) -> Iterator[tuple[str, object]]:
    for number, gpu in enumerate(visible):
        yield f"gpu.{number}.multiprocessors", gpu.model.multiprocessors or OTHERWISE
        yield f"gpu.{number}.memory_bus_bits", gpu.model.memory_bus_bits or 0
        yield f"gpu.{number}.copy_engines", 2 if gpu.model.brand == GEFORCE else 3


def _pair(link: Link) -> Iterator[tuple[str, object]]:
    yield from (("gb_s", link.gb_s), ("staged_gb_s", link.staged_gb_s), ("latency_us", link.latency_us))
    yield "links", " ".join(link.resources)
    if link.duplex != 1:
        yield "duplex", link.duplex
    if link.damage is not None:
        yield "damage", link.damage
    if link.stuck:
        yield "stuck", 1
    if link.error is not None:
        yield "error", link.error


def _reading(machine: Machine, visible: list[SimulatedGpu]) -> NvmlReading:
    """What a reading of NVML comes to, as far as paths and rates depend on it."""
    ancestors = tuple(
        tuple("X" if a is b else CLASSES[common_ancestor(machine, a, b)] for b in visible) for a in visible
    )
    p2p: dict[str, tuple[tuple[str | None, ...], ...]] = {
        name: tuple(
            tuple("X" if a is b else P2P_STATUS[p2p_status(a, b, P2P_CAPABILITIES[name])] for b in visible)
            for a in visible
        )
        for name in ("read", "write")
    }
    gpus = tuple(_gpu(machine, gpu, number) for number, gpu in enumerate(visible))
    version = machine.profile.driver.version
    return NvmlReading(
        driver_version=version, nvml_version=version, cuda_version=None, gpus=gpus, ancestors=ancestors, p2p=p2p
    )


def _gpu(machine: Machine, gpu: SimulatedGpu, number: int) -> Gpu:
    function = gpu.function
    slot = machine.slot(function)
    return Gpu(
        index=number,
        name=gpu.model.name,
        uuid=gpu.uuid,
        pci_bus_id=function.bus_id,
        device_id=function.ids.partition(":")[2],
        compute_capability=gpu.model.compute_capability,
        numa_node=function.numa_node,
        pcie=PcieLink(
            generation=int(gpu.nvml.get("pcie.generation", function.generation)),
            width=int(gpu.nvml.get("pcie.width", function.width)),
            max_generation=min(function.max_generation, slot.max_generation),
            max_width=min(function.max_width, slot.max_width),
            device_max_generation=function.max_generation,
        ),
        nvlinks=tuple(_nvlink(gpu, place) for place in range(len(gpu.links))),
    )


def _nvlink(gpu: SimulatedGpu, place: int) -> NvLink:
    link, ports = gpu.links[place], gpu.model.nvlink
    if not link.active or ports is None:
        return NvLink(link=place, active=False, state="inactive")
    kind: Literal["gpu", "switch"] = "gpu" if link.remote_type == REMOTE_GPU else "switch"
    return NvLink(
        link=place,
        active=True,
        state="active",
        version=ports.version,
        remote_kind=kind,
        remote_bus_id=link.bus_id,
        remote_link=link.peer[1] if link.peer else None,
        speed_mb_s=ports.speed_mb_s,
    )
