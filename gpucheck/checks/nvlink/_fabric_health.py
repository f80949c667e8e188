"""What a registered GPU reports about its fabric: the health mask, and the partition that it belongs to.

Fields of the mask as in nvml.h (NVML_GPU_FABRIC_HEALTH_MASK_*). 0 is "not reported" in all of them, as on drivers that
have the call and no health (gpud#1106: a healthy GB200 reports 0 throughout). The driver's summary of them
(NVML_GPU_FABRIC_HEALTH_SUMMARY_*) counts where the mask shows nothing.

Nothing on such a host manages the fabric: the NVLink switches are registered and partitioned on the switch trays, and
IMEX on the compute trays shares memory between them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from gpucheck.knowledge import GpuModel, find_gpu, gpu_by_pci_id
from gpucheck.model import Fabric, Finding, Gpu
from gpucheck.model.finding.about import About

NAME = "fabric"
TRUE = 1
# Field -> shift of a two-bit field, and what it means to traffic. NVML's 1 is true, 2 false.
FAULTS = {"route unhealthy": (4, "Some routes of this GPU through the NVSwitches do not work.")}
LIMITS = {
    "degraded bandwidth": (0, "The fabric gives this GPU less than its full NVLink bandwidth."),
    "route recovery in progress": (2, "The fabric is rerouting traffic around a failure."),
    "access timeout recovery in progress": (6, "The fabric is recovering from accesses that timed out."),
}
RECORDED = {"partition assigned": 12, "fabric manager connection": 14}
CONFIGURATION_SHIFT, FINE = 8, (0, 1)
CONFIGURATION = {
    2: "incorrect system GUID",
    3: "incorrect chassis serial number",
    4: "no partition",
    5: "insufficient NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
    8: "invalid GPU state",
}
INSUFFICIENT_NVLINKS = 5
HGX_FIX = (
    "nvidia-smi -q | grep -A 12 Fabric\n"
    "journalctl -u nvidia-fabricmanager; dmesg | grep -e SXid -e Xid\n"
    "Reset all GPUs of the board together: nvidia-smi --gpu-reset"
)


def health_findings(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    for gpu in gpus:
        if gpu.fabric is not None and gpu.fabric.state == "completed":
            found = list(_evaluate(gpu, gpu.fabric.health_mask)) if gpu.fabric.health_mask else []
            yield from found or _summary(gpu, gpu.fabric)


def _evaluate(gpu: Gpu, mask: int) -> Iterator[Finding]:
    states = [f"{name}: {mask >> shift & 3}" for name, (shift, _) in (FAULTS | LIMITS).items()]
    states += [f"{name}: {mask >> shift & 3}" for name, shift in RECORDED.items() if mask >> shift & 3]
    configuration = mask >> CONFIGURATION_SHIFT & 0xF
    line = f"fabric health mask 0x{mask:x} (1 = true, 2 = false): {', '.join(states)}, configuration: {configuration}"
    about = About(check=NAME, subject=f"gpu:{gpu.pci_bus_id}", evidence=(line,))
    fix = SWITCH_TRAYS if is_tray_gpu(gpu) else HGX_FIX
    if configuration not in FINE:
        what = CONFIGURATION.get(configuration, f"code {configuration}")
        cause = "nvlink-down" if configuration == INSUFFICIENT_NVLINKS else "fabric-degraded"
        why = "The fabric rejects the configuration of this GPU, which then cannot use its NVLinks in full."
        yield about.fails(f"incorrect fabric configuration: {what}", "none", why, fix, cause)
        return
    for name, (shift, why) in FAULTS.items():
        if mask >> shift & 3 == TRUE:
            yield about.fails(f"fabric {name}", "healthy", why, fix, "fabric-degraded")
            return
    limited = {name: why for name, (shift, why) in LIMITS.items() if mask >> shift & 3 == TRUE}
    if limited:
        seen = f"fabric with {', '.join(limited)}"
        yield about.warns(seen, "full bandwidth", " ".join(limited.values()), fix, "fabric-degraded")


def _summary(gpu: Gpu, fabric: Fabric) -> Iterator[Finding]:
    """The driver's own verdict, where no bit of the mask shows more."""
    about = About(check=NAME, subject=f"gpu:{gpu.pci_bus_id}", evidence=(f"fabric health: {fabric.health_summary}",))
    fix = SWITCH_TRAYS if is_tray_gpu(gpu) else HGX_FIX
    if fabric.health_summary == "unhealthy":
        why = "The driver reports the fabric of this GPU as unhealthy: GPU to GPU traffic may fail."
        yield about.fails("fabric unhealthy", "healthy", why, fix, "fabric-degraded")
    if fabric.health_summary == "limited-capacity":
        why = LIMITS["degraded bandwidth"][1]
        yield about.warns("fabric with limited capacity", "full bandwidth", why, fix, "fabric-degraded")


def clique_finding(gpus: Sequence[Gpu]) -> Finding | None:
    """Return WARN where the registered GPUs of one host are not in one clique of one cluster."""
    cliques = Counter(
        (gpu.fabric.cluster_uuid, gpu.fabric.clique_id)
        for gpu in gpus
        if gpu.fabric is not None and gpu.fabric.state == "completed" and gpu.fabric.status == 0
    )
    if len(cliques) < 2:
        return None
    parts = [f"clique {clique} ({count} GPU{'s' * (count > 1)})" for (_, clique), count in cliques.items()]
    lines = tuple(
        f"{gpu.pci_bus_id}: cluster {gpu.fabric.cluster_uuid}, clique {gpu.fabric.clique_id}"
        for gpu in gpus
        if gpu.fabric is not None
    )
    why = "Only GPUs of one clique reach each other over NVLink; a rack's partitions are drawn on its switch trays."
    fix = SWITCH_TRAYS if any(map(is_tray_gpu, gpus)) else HGX_FIX
    about = About(check=NAME, evidence=lines)
    return about.warns(f"GPUs in {', '.join(parts)}", "one clique", why, fix, "fabric-degraded", "likely")


SWITCH_TRAYS = (
    "nvidia-smi -q | grep -A 12 Fabric\n"
    "On the switch trays of the rack: check the NVLink control plane (NMX Controller) and the partition of this tray.\n"
    "On this tray: gpucheck verify --only nvlink,imex"
)


def model_of(gpu: Gpu) -> GpuModel | None:
    """Return the row of the GPU table: by what the driver calls the GPU, which knows ids that are not in the table."""
    return find_gpu(gpu.name) or gpu_by_pci_id(gpu.device_id)


def is_tray_gpu(gpu: Gpu) -> bool:
    """Whether the GPU belongs to a rack's fabric: by its name, else by its cluster, else by its PCI id."""
    named, numbered = find_gpu(gpu.name), gpu_by_pci_id(gpu.device_id)
    if named is not None:
        return named.fabric == "imex"
    return in_cluster(gpu) or (numbered is not None and numbered.fabric == "imex")


def is_nvlink5_board(gpu: Gpu) -> bool:
    """Whether the GPU is one of an HGX B200 or B300, whose switches no PCI device shows: they are managed through the
    InfiniBand functions of the board, by fabric manager and NVLSM.
    """
    model = model_of(gpu)
    return model is not None and model.fabric == "nvlink5"


def in_cluster(gpu: Gpu) -> bool:
    """Whether the driver reports a cluster that the GPU shares with other hosts."""
    return gpu.fabric is not None and gpu.fabric.spans_hosts
