"""How a finding's subject is named: NVML's index and UUID for programs, ``GPU 2 (0000:4c:00.0)`` for people."""

import re
from collections.abc import Iterable

from msgspec.structs import replace

from gpucheck.model.device import Device
from gpucheck.model.finding import Finding
from gpucheck.model.host.hardware import Gpu, TopologyGpu

BUS_ID = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")


NamedGpu = Gpu | TopologyGpu | Device


def named(findings: Iterable[Finding], gpus: Iterable[NamedGpu]) -> tuple[Finding, ...]:
    """Return the findings with the index and UUID of the GPUs that their subjects name by bus id."""
    places = ((gpu.bus_id if isinstance(gpu, Device) else gpu.pci_bus_id, gpu) for gpu in gpus)
    known = {bus_id: gpu for bus_id, gpu in places if bus_id}
    return tuple(_named(finding, known) for finding in findings)


def _named(finding: Finding, known: dict[str, NamedGpu]) -> Finding:
    found = [known.get(bus_id) for bus_id in bus_ids(finding.subject)]
    if not any(found):
        return finding
    gpu, peer = (*found, None)[:2]
    return replace(
        finding,
        gpu_index=gpu.index if gpu else None,
        gpu_uuid=gpu.uuid if gpu else None,
        peer_index=peer.index if peer else None,
        peer_uuid=peer.uuid if peer else None,
    )


def bus_ids(subject: str) -> tuple[str, ...]:
    """Return what the subject names: one bus id for a GPU or a link, two for a pair, none for the host."""
    kind, _, name = subject.partition(":")
    if kind == "pair":
        first, _, second = name.partition("-")
        return first, second
    if kind == "link":
        return (name.partition("/")[0],)
    return (name,) if kind == "gpu" else ()


def where(finding: Finding) -> str:
    """Return the subject as text: ``GPU 2 (0000:4c:00.0) NVLink 3``; empty for the host as a whole."""
    kind, _, name = finding.subject.partition(":")
    ids = bus_ids(finding.subject)
    if kind == "pair":
        return f"{gpu_name(ids[0], finding.gpu_index)} - {gpu_name(ids[1], finding.peer_index)}"
    if kind == "gpu":
        return gpu_name(name, finding.gpu_index)
    if kind == "link":
        _, _, link = name.partition("/")
        is_gpu = link or finding.gpu_index is not None
        device = gpu_name(ids[0], finding.gpu_index) if is_gpu else _device(ids[0])
        return f"{device} NVLink {link}" if link else device
    if kind == "nic":
        words = (finding.values.get("device", "NIC"), "port" in finding.values and f"port {finding.values['port']}")
        text = " ".join(str(word) for word in words if word)
        return f"{text} ({name})" if BUS_ID.fullmatch(name) else text
    return "" if finding.subject == "host" else finding.subject


def gpu_name(bus_id: str, index: int | None) -> str:
    """Return ``GPU 2 (0000:4c:00.0)``; without an index the bus id alone, which ``nvidia-smi -i`` takes as well."""
    if index is not None:
        return f"GPU {index}" if bus_id == f"GPU{index}" else f"GPU {index} ({bus_id})"
    return f"GPU {bus_id.removeprefix('GPU').strip()}"


def _device(name: str) -> str:
    """A bridge, a port or an NVSwitch: the subject does not distinguish them, and lspci -s accepts its bus id."""
    return f"PCIe device {name}" if BUS_ID.fullmatch(name) else name
