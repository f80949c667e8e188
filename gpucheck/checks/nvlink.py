"""NVLink: is every link up that this GPU model has?

Sources: nvmlDeviceGetNvLinkState for every port, against the links of the model in the GPU table (12 of 18 ports is
normal on H100 NVL and PCIe). A missing link of 18 costs 5.6 % bandwidth, which a measurement cannot tell from noise,
so the count is judged by itself.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import no_gpus, not_looked
from gpucheck.knowledge import GpuModel, find_gpu, gpu_by_pci_id
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure, NvmlReading, Verdict

NAME = "nvlink"


def probe(host: Host) -> NvmlReading | NvmlFailure:
    """Ask NVML."""
    return host.nvml()


def evaluate(nvml: NvmlReading | NvmlFailure) -> Iterator[Finding]:
    """One finding a GPU with NVLink; one SKIP for a host without."""
    if isinstance(nvml, NvmlFailure):
        yield not_looked(NAME, nvml)
        return
    if not nvml.gpus:
        yield no_gpus(NAME)
        return
    models = [gpu_by_pci_id(gpu.device_id) or find_gpu(gpu.name) for gpu in nvml.gpus]
    linked = [(g, m) for g, m in zip(nvml.gpus, models, strict=True) if g.nvlinks or (m is not None and m.nvlink)]
    if not linked:
        yield Finding(
            check=NAME,
            verdict=Verdict.SKIP,
            subject="host",
            seen="no NVLink",
            why="no GPU of this host has NVLink ports: GPU to GPU traffic takes PCIe",
        )
    for gpu, model in linked:
        yield _judge(gpu, model)


def _judge(gpu: Gpu, model: GpuModel | None) -> Finding:
    subject, up = f"gpu:{gpu.pci_bus_id}", gpu.active_nvlinks
    down = [link.link for link in gpu.nvlinks if not link.active]
    evidence = (f"nvmlDeviceGetNvLinkState: {up} of {len(gpu.nvlinks)} ports up, down: {down or 'none'}",)
    spec = model.nvlink if model is not None else None
    if spec is None:
        return _unknown_model(gpu, subject, up, evidence)
    if up >= spec.links:
        return Finding(
            check=NAME,
            verdict=Verdict.PASS,
            subject=subject,
            seen=up,
            wanted=spec.links,
            unit="links",
            evidence=evidence,
        )
    if spec.bridge and up == 0:
        return Finding(
            check=NAME,
            verdict=Verdict.SKIP,
            subject=subject,
            seen=0,
            wanted=spec.links,
            unit="links",
            why="this card has NVLink only through a bridge, and none is seated",
            fix="nothing to do without a bridge; with one: reseat it and reboot",
            evidence=evidence,
        )
    missing = spec.links > len(gpu.nvlinks)
    return Finding(
        check=NAME,
        verdict=Verdict.FAIL,
        subject=subject,
        seen=up,
        wanted=spec.links,
        unit="links",
        cause="nvlink-missing" if missing else "nvlink-down",
        confidence="certain",
        why=f"{model.name if model else gpu.name} has {spec.links} links, and {spec.links - up} of them cannot be used",
        fix="dmesg | grep -e knvlink -e Xid; reseat the bridge or baseboard, reset the GPU, then reboot",
        evidence=evidence,
    )


def _unknown_model(gpu: Gpu, subject: str, up: int, evidence: tuple[str, ...]) -> Finding:
    if up == len(gpu.nvlinks):
        return Finding(
            check=NAME, verdict=Verdict.PASS, subject=subject, seen=up, wanted=up, unit="links", evidence=evidence
        )
    return Finding(
        check=NAME,
        verdict=Verdict.UNKNOWN,
        subject=subject,
        seen=up,
        wanted=None,
        unit="links",
        why=f"{gpu.name} is not in the GPU table, so it is not known how many of its ports should be up",
        fix="compare with the other GPUs of this model and the vendor's data sheet",
        evidence=evidence,
    )


CHECK = Check(NAME, frozenset({"hardware", "nvlink", "quick"}), probe, evaluate)
