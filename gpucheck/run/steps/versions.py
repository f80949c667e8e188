"""Version truth before training: was this framework build made for these GPUs, this driver and these libraries?

What a mismatch looks like otherwise is a CUDA traceback in the middle of a job. The verdict is that of the ``stack``
check; here it carries the build to install, which the resolver names for this very host.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpucheck.checks.software import stack as stack_check
from gpucheck.checks.software._wheels import evaluate_wheels
from gpucheck.knowledge import gpu_by_pci_id
from gpucheck.model import Finding, Host, Verdict

if TYPE_CHECKING:
    from gpucheck.stack import StackSet

NAME = "smoke-versions"


def version_consistency(host: Host) -> tuple[Finding, ...]:
    """Yield findings about every framework wheel installed with gpucheck; one SKIP if there is none."""
    values = stack_check.probe(host)
    findings = tuple(
        evaluate_wheels(
            values.wheels, values.libraries, values.capabilities, values.driver.loaded_version, values.arch, None
        )
    )
    if not values.capabilities or not findings:
        return (_nothing(values),)
    builds = builds_for(host)
    return tuple(_with_build(finding, builds) for finding in findings)


def refused(findings: tuple[Finding, ...]) -> dict[str, Finding]:
    """Framework -> the finding for which it cannot train on this host's GPUs."""
    found: dict[str, Finding] = {}
    for finding in findings:
        if finding.verdict is Verdict.FAIL:
            for framework in ("torch", "tensorflow"):
                if framework in f"{finding.seen} {finding.why}":
                    found.setdefault(framework, finding)
    return found


def builds_for(host: Host) -> dict[str, str]:
    """Return framework -> the build that the resolver chooses for this host, as text; empty if it cannot choose."""
    from gpucheck.stack import StackSet, UnknownInput, resolve

    system = host.system()
    gpus = [device.device_id for device in host.pci() if device.is_nvidia_gpu and gpu_by_pci_id(device.device_id)]
    try:
        chosen = resolve(gpus, f"{system.os_id}-{system.os_version}", system.arch)
    except UnknownInput:
        return {}
    return dict(_builds(chosen)) if isinstance(chosen, StackSet) else {}


def _builds(chosen: "StackSet") -> Iterator[tuple[str, str]]:
    driver = f"with driver {chosen.driver.version}"
    if chosen.torch is not None:
        yield "torch", f"torch {chosen.torch.version}+{chosen.torch.build} {driver}"
    if chosen.tensorflow is not None:
        yield "tensorflow", f"tensorflow {chosen.tensorflow.version} {driver}"


def _with_build(finding: Finding, builds: dict[str, str]) -> Finding:
    finding = replace(finding, check=NAME)
    if finding.verdict is not Verdict.FAIL:
        return finding
    for framework, build in builds.items():
        if framework in f"{finding.seen} {finding.why}":
            return replace(finding, fix=f"install {build}, as gpucheck stack resolve chooses for this host")
    return finding


def _nothing(values: stack_check.Values) -> Finding:
    wheels = ", ".join(f"{wheel.name} {wheel.version}" for wheel in values.wheels) or "no framework"
    gpus = len(values.capabilities)
    return Finding(
        check=NAME,
        verdict=Verdict.SKIP,
        subject="host",
        seen=f"{wheels}, {gpus} GPU{'' if gpus == 1 else 's'}",
        wanted="a CUDA build and a GPU",
        why="a build without CUDA uses no GPU, so there is nothing that could mismatch"
        if values.wheels
        else "no framework is installed with gpucheck, so no build can be compared",
    )
