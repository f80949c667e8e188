"""What the NVML-based checks share: one pass over the GPUs, and what to say where NVML gave no answer."""

from collections.abc import Callable, Iterator

from gpucheck.model import Finding, Gpu, NvmlFailure, NvmlReading, Verdict
from gpucheck.model.about import About

# NVML: not supported, and not in this library.
NOT_HERE = (3, 13)
# NVML: no permission, and blocked by the operating system.
REFUSED = (4, 17)


def each_gpu(
    check: str,
    nvml: NvmlReading | NvmlFailure,
    judge: Callable[[Gpu], Finding | None],
    *,
    nothing: str,
) -> Iterator[Finding]:
    """A finding for each GPU that judge has something to say about; nothing: why none has, as the host's one SKIP."""
    if isinstance(nvml, NvmlFailure):
        yield not_looked(check, nvml)
        return
    if not nvml.gpus:
        yield no_gpus(check)
        return
    found = [finding for finding in map(judge, nvml.gpus) if finding is not None]
    yield from found
    if not found:
        yield About(check=check).skips(nothing)


def not_told(check: str, nvml: NvmlReading | NvmlFailure, gpu: Gpu, *calls: str) -> Finding | None:
    """None where this GPU does not have what was asked for, else UNKNOWN with the return code of the call."""
    subject = f"gpu:{gpu.pci_bus_id}"
    gaps = nvml.gaps if isinstance(nvml, NvmlReading) else ()
    refusals = [gap for gap in gaps if gap.call in calls and gap.subject.startswith(subject)]
    wrong = [gap for gap in refusals if gap.code not in NOT_HERE]
    if refusals and not wrong:
        return None
    about = About(check=check, subject=subject, evidence=tuple(f"{g.call}: {g.code} {g.name}" for g in wrong))
    if any(gap.code in REFUSED for gap in wrong):
        return about.unknown("the operating system refused the question", f"sudo gpucheck verify --only {check}")
    names = " and ".join(sorted({gap.call for gap in wrong}) or calls)
    return about.unknown(f"{names} gave no answer for this GPU", "read the kernel log for NVRM lines and try again")


def not_looked(check: str, failure: NvmlFailure) -> Finding:
    """UNKNOWN: without NVML there is no evidence, and no evidence is not a pass."""
    return Finding(
        check=check,
        verdict=Verdict.UNKNOWN,
        subject="host",
        because_of="driver",
        seen="NVML gave no answer",
        why=f"{failure.call} ended with {failure.name}, so nothing could be looked at",
        fix="solve what the driver check reports first: gpucheck verify --only driver",
        evidence=(f"{failure.call}: {failure.code} {failure.name} {failure.detail}".rstrip(),),
    )


def no_gpus(check: str) -> Finding:
    """UNKNOWN: NVML works and lists nothing."""
    return Finding(
        check=check,
        verdict=Verdict.UNKNOWN,
        subject="host",
        because_of="inventory",
        seen="0 GPUs",
        wanted="1 or more",
        why="NVML works and lists no GPU, so there is nothing to judge",
        fix="gpucheck verify --only inventory",
    )


def no_gpu_on_the_bus(check: str) -> Finding:
    """UNKNOWN: sysfs shows no GPU. The inventory check compares that with NVML."""
    return About(check=check).unknown(
        "the PCI bus shows no NVIDIA GPU", "gpucheck verify --only inventory", "0 GPUs", because_of="inventory"
    )
