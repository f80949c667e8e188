"""What the NVML-based checks say when NVML itself gave no answer. The driver check carries the cause."""

from gpucheck.model import Finding, NvmlFailure, Verdict


def not_looked(check: str, failure: NvmlFailure) -> Finding:
    """UNKNOWN: without NVML there is no evidence, and no evidence is not a pass."""
    return Finding(
        check=check,
        verdict=Verdict.UNKNOWN,
        subject="host",
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
        seen="0 GPUs",
        wanted="1 or more",
        why="NVML works and lists no GPU, so there is nothing to judge",
        fix="gpucheck verify --only inventory",
    )
