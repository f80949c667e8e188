"""What a registered GPU reports about its fabric: the health mask, and the partition that it belongs to.

Fields of the mask as in nvml.h (NVML_GPU_FABRIC_HEALTH_MASK_*). 0 is "not reported" in all of them, as on drivers that
have the call and no health (gpud#1106: a healthy GB200 reports 0 throughout). The driver's summary of them
(NVML_GPU_FABRIC_HEALTH_SUMMARY_*) counts where the mask shows nothing.

Nothing on such a host manages the fabric: the NVLink switches are registered and partitioned on the switch trays, and
IMEX on the compute trays shares memory between them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from gpucheck.checks._nvml import about
from gpucheck.knowledge import GpuModel, find_gpu, gpu_by_pci_id
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Fabric, Finding, Gpu

NAME = "fabric"
TRUE = 1
# Shifts of two-bit fields. NVML's 1 is true, 2 false.
ROUTE_UNHEALTHY = 4
LIMITS = {"degraded bandwidth": 0, "route recovery in progress": 2, "access timeout recovery in progress": 6}
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


def health_findings(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    for gpu in gpus:
        if gpu.fabric is not None and gpu.fabric.state == "completed":
            found = _evaluate(gpu, gpu.fabric.health_mask) if gpu.fabric.health_mask else None
            yield from filter(None, [found or _summary(gpu, gpu.fabric)])


def _evaluate(gpu: Gpu, mask: int) -> Finding | None:
    states = [f"{name}: {mask >> shift & 3}" for name, shift in ({"route unhealthy": ROUTE_UNHEALTHY} | LIMITS).items()]
    states += [f"{name}: {mask >> shift & 3}" for name, shift in RECORDED.items() if mask >> shift & 3]
    configuration = mask >> CONFIGURATION_SHIFT & 0xF
    line = f"fabric health mask 0x{mask:x} (1 = true, 2 = false): {', '.join(states)}, configuration: {configuration}"
    subject = about(NAME, gpu, line)
    tray = is_tray_gpu(gpu)
    if configuration not in FINE:
        seen = f"incorrect fabric configuration: {CONFIGURATION.get(configuration, f'code {configuration}')}"
        code = "nvlink.tray-configuration-rejected" if tray else "nvlink.configuration-rejected"
        cause = "nvlink-down" if configuration == INSUFFICIENT_NVLINKS else "fabric-degraded"
        return subject.fails(code, seen, "none", cause=cause)
    if mask >> ROUTE_UNHEALTHY & 3 == TRUE:
        code = "nvlink.tray-route-unhealthy" if tray else "nvlink.route-unhealthy"
        return subject.fails(code, "fabric route unhealthy", "healthy")
    limits = tuple(name for name, shift in LIMITS.items() if mask >> shift & 3 == TRUE)
    return _limited(subject, f"fabric with {', '.join(limits)}", limits, tray=tray) if limits else None


def _limited(subject: Subject, seen: str, limits: tuple[str, ...], *, tray: bool) -> Finding:
    code = "nvlink.tray-fabric-limited" if tray else "nvlink.fabric-limited"
    return subject.warns(code, seen, "full bandwidth", limits=limits)


def _summary(gpu: Gpu, fabric: Fabric) -> Finding | None:
    """The driver's own verdict, where no bit of the mask shows more."""
    line = f"fabric health: {fabric.health_summary}"
    subject, tray = about(NAME, gpu, line), is_tray_gpu(gpu)
    if fabric.health_summary == "unhealthy":
        code = "nvlink.tray-fabric-unhealthy" if tray else "nvlink.fabric-unhealthy"
        return subject.fails(code, "fabric unhealthy", "healthy")
    if fabric.health_summary == "limited-capacity":
        return _limited(subject, "fabric with limited capacity", ("limited capacity",), tray=tray)
    return None


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
    code = "nvlink.tray-fabric-divided" if any(map(is_tray_gpu, gpus)) else "nvlink.fabric-divided"
    return Subject(check=NAME, evidence=lines).warns(code, f"GPUs in {', '.join(parts)}", "one clique")


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
