"""Reports of a host as verify makes them, with chosen hardware, counters and times."""

import msgspec

from gpucheck.checks.nvlink import links
from gpucheck.model import Gpu, NvmlGap, Report, Verdict
from gpucheck.run import verification as run
from gpucheck.run.steps.health import record_step
from tests.machines import h100, whole_host
from tests.render.reports import copies

THEN, NOW = "2026-11-21T10:00:00+00:00", "2026-11-21T20:00:00+00:00"
UPTIME_H = 100.0
GPUS = (h100(0), h100(1))


def report(*gpus: Gpu, started: str = NOW, findings=(), measured=None, gaps=None, **fields) -> Report:
    """Of a host with these GPUs, 100 hours up, its record taken by the step itself. gaps: of the states of
    NVLinks, which are then checked."""
    host = whole_host(*gpus)
    host = msgspec.structs.replace(host, nvml=msgspec.structs.replace(host.nvml, gaps=gaps or ()))
    findings = (*findings, *(links.evaluate(host) if gaps is not None else ()))
    host.texts["/proc/uptime"] = f"{UPTIME_H * 3600} 1.0"
    made = run.verify(host, [record_step()])
    fields.setdefault("findings", (*made.findings, *findings))
    numbers = {**made.measurements, **({"p2p": measured} if measured is not None else {})}
    return msgspec.structs.replace(made, started=started, measurements=numbers, **fields)


def healthy(gpu: Gpu, **fields) -> Gpu:
    """The GPU with other fields of its health."""
    return msgspec.structs.replace(gpu, health=msgspec.structs.replace(gpu.health, **fields))


def without_state(gpu: Gpu, link: int) -> tuple[Gpu, NvmlGap]:
    """The GPU without this NVLink, and the failure of NVML (999, unknown error) that left it out."""
    left = tuple(one for one in gpu.nvlinks if one.link != link)
    subject = f"link:{gpu.pci_bus_id}/{link}"
    gap = NvmlGap(call="nvmlDeviceGetNvLinkState", subject=subject, code=999, name="NVMLError_Unknown")
    return msgspec.structs.replace(gpu, nvlinks=left), gap


def copied(gpus: tuple[Gpu, ...] = GPUS, slow=(), engine: str = "torch"):
    return copies([gpu.pci_bus_id for gpu in gpus], slow) | {"engine": engine}


def loud(findings):
    return [f for f in findings if f.verdict not in (Verdict.PASS, Verdict.SKIP)]
