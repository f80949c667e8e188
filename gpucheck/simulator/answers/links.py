"""The NVLink ports of a GPU and what is at their far ends, and its registration with the NVSwitch fabric."""

from collections.abc import Iterator

from gpucheck.simulator.machine import REMOTE_GPU, REMOTE_SWITCH, Link, Machine, SimulatedGpu

LINK_ERRORS = range(5)  # nvmlNvLinkErrorCounter_t: replay, recovery, CRC flit, CRC data, ECC data
LINK_CAPABILITIES = (1, 1, 1, 1, 0, 1)  # P2P, system memory, P2P atomics, system atomics, SLI, valid
NVLINK_5 = 7  # NVML's version enum
# Per link from NVLink 5 on: packets and bytes both ways, errors by kind, recoveries, bit error rates. A rate that is
# too low to measure is mantissa 15, exponent 255 (nvml.h, NVML_NVLINK_BER_*).
NVLINK_5_COUNTERS = dict.fromkeys(range(201, 223), 0) | dict.fromkeys((220, 222), 0xFFF)
BLACKWELL = 10  # nvmlDeviceArchitecture_t
TRAFFIC = range(138, 142)  # KiB: data sent and received, raw sent and received
ALL_LINKS = 0xFFFFFFFF
# NVLink-C2C: field of the count, and of each link whether it is active, MB/s, three kinds of errors, power state.
# Speed: nvidia-smi c2c -s of GH200 (10 links) and GB200; 5 links on GB200 and GB300 follows from their 225 GB/s.
C2C_COUNT, C2C_LINKS, C2C = 170, 5, {171: 1, 172: 44712, 231: 0, 232: 0, 233: 0, 234: 0}


def links(machine: Machine, gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    """Keys and values of a GPU."""
    yield from _fabric(gpu)
    if gpu.model.coherent:
        yield f"field.{C2C_COUNT}", C2C_LINKS
        yield from ((f"field.{field}.{link}", value) for link in range(C2C_LINKS) for field, value in C2C.items())
    ports = gpu.model.nvlink
    if ports is None:
        return
    yield from (("nvlink.count", ports.links), ("nvlink.speed", ports.speed_mb_s), ("nvlink.encrypted", 0))
    if gpu.model.architecture >= BLACKWELL:
        yield "nvlink.bandwidth_mode", 0
    yield "nvlink.switch_links", sum(link.active and link.remote_type == REMOTE_SWITCH for link in gpu.links)
    newest = ports.version >= NVLINK_5
    yield from ((f"field.{field}.{ALL_LINKS}", "0ull") for field in (() if newest else TRAFFIC))
    for number, link in enumerate(gpu.links):
        speed = ports.speed_mb_s if link.active else 0
        yield from ((f"nvlink.{number}.active", int(link.active)), (f"nvlink.{number}.version", ports.version))
        yield f"nvlink.{number}.speed", speed
        yield from ((f"nvlink.{number}.capability.{n}", value) for n, value in enumerate(LINK_CAPABILITIES))
        if newest:
            yield from ((f"field.{field}.{number}", f"{value}ull") for field, value in NVLINK_5_COUNTERS.items())
        else:
            yield from ((f"nvlink.{number}.errors.{counter}", 0) for counter in LINK_ERRORS)
            yield from ((f"field.{field}.{number}", "0ull") for field in TRAFFIC)
        yield from ((f"nvlink.{number}.remote.{key}", value) for key, value in _remote(machine, link))


def _remote(machine: Machine, link: Link) -> Iterator[tuple[str, object]]:
    """The far end of a live link. The driver does not fill in its subsystem id."""
    if not link.active or link.remote_type is None:
        return
    yield "type", link.remote_type
    if link.bus_id is not None:
        vendor, device = machine.functions[link.bus_id].ids.split(":")
        yield from (("bus_id", link.bus_id), ("pci_device_id", f"0x{device}{vendor}"))
    if link.remote_type == REMOTE_GPU and link.peer is not None:
        yield "link", link.peer[1]


def _fabric(gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    if gpu.model.fabric is None:
        return
    yield from (("fabric.status", 0), ("fabric.clique", 0), ("fabric.state", gpu.fabric_state))
    yield from (("fabric.health_mask", gpu.model.fabric.health_mask), ("fabric.health_summary", 1))
