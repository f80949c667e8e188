"""Version truth before training: was this framework build made for these GPUs, this driver and these libraries?

What a mismatch looks like otherwise is a CUDA traceback in the middle of a job. The verdict is that of the ``stack``
check; here it carries the build to install, which the resolver names for this very host.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpucheck.checks.software._wheels import NEEDS, capabilities_of, evaluate_wheels, more, read_wheels
from gpucheck.knowledge import gpu_by_pci_id
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Verdict
from gpucheck.model.facts import Facts, Source

if TYPE_CHECKING:
    from gpucheck.stack import StackSet

NAME = "smoke-versions"


def version_consistency(source: Source) -> tuple[Finding, ...]:
    """Yield findings about every framework wheel installed with gpucheck; one SKIP if there is none."""
    facts = source.read(*more(source.read(*NEEDS)))
    found: list[Finding] = []
    for finding in evaluate_wheels(facts):  # a library that two frameworks share is evaluated for each
        found += () if finding in found else (finding,)
    wheels = {wheel.name: wheel.version for wheel in read_wheels(facts)[0]}
    gpus = len(capabilities_of(facts))
    if not gpus or not found:
        return (_nothing(wheels, gpus),)
    builds = builds_for(facts) if any(map(_is_of_build, found)) else {}
    return tuple(_of_build(one, wheels, builds) if _is_of_build(one) else replace(one, check=NAME) for one in found)


def refused(findings: tuple[Finding, ...]) -> dict[str, Finding]:
    """Framework -> the first finding for which it cannot train on this host's GPUs."""
    return {str(one.values["framework"]): one for one in reversed(findings) if _is_of_build(one)}


def _is_of_build(finding: Finding) -> bool:
    """Whether the build of a framework cannot run here: a library that is wrong is a wheel of its own."""
    return finding.verdict is Verdict.FAIL and "framework" in finding.values


def builds_for(facts: Facts) -> dict[str, tuple[str, str]]:
    """Return framework -> the build and the driver that the resolver chooses for this host; empty if it cannot."""
    from gpucheck.stack import StackSet, UnknownInput, resolve

    system = facts.system
    gpus = [device.device_id for device in facts.pci if device.is_nvidia_gpu and gpu_by_pci_id(device.device_id)]
    try:
        chosen = resolve(gpus, f"{system.os_id}-{system.os_version}", system.arch)
    except UnknownInput:
        return {}
    return dict(_builds(chosen)) if isinstance(chosen, StackSet) else {}


def _builds(chosen: "StackSet") -> Iterator[tuple[str, tuple[str, str]]]:
    driver = str(chosen.driver.version)
    if chosen.torch is not None:
        yield "torch", (f"torch {chosen.torch.version}+{chosen.torch.build}", driver)
    if chosen.tensorflow is not None:
        yield "tensorflow", (f"tensorflow {chosen.tensorflow.version}", driver)


CODES = {
    "software.no-code-for-gpu": ("run.framework-lacks-code", "run.framework-lacks-code-unresolved"),
    "software.driver-below-floor": ("run.framework-needs-driver", "run.framework-needs-driver-unresolved"),
}


def _of_build(finding: Finding, wheels: dict[str, str], builds: dict[str, tuple[str, str]]) -> Finding:
    resolved, unresolved = CODES[finding.code or ""]
    subject = Subject(check=NAME, name=finding.subject, evidence=finding.evidence)
    framework = str(finding.values["framework"])
    values: dict[str, Any] = {"framework": framework, "version": wheels[framework]}
    if framework not in builds:
        return subject.fails(unresolved, finding.seen, finding.wanted, **values)
    values |= dict(zip(("build", "driver"), builds[framework], strict=True))
    return subject.fails(resolved, finding.seen, finding.wanted, **values)


def _nothing(wheels: dict[str, str], gpus: int) -> Finding:
    code = "run.framework-without-gpu" if wheels else "run.framework-not-installed"
    names = ", ".join(f"{name} {version}" for name, version in wheels.items()) or "no framework"
    seen = f"{names}, {gpus} GPU{'' if gpus == 1 else 's'}"
    return Subject(check=NAME).skips(code, seen, "a CUDA build and a GPU")
