"""Version truth before training: was this framework build made for these GPUs, this driver and these libraries?

What a mismatch looks like otherwise is a CUDA traceback in the middle of a job. The verdict is that of the ``stack``
check; here it carries the build to install, which the resolver names for this very host.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpucheck.checks.software import stack as stack_check
from gpucheck.checks.software._wheels import LIBRARIES, Wheel, evaluate_wheels
from gpucheck.knowledge import gpu_by_pci_id
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Host, Verdict

if TYPE_CHECKING:
    from gpucheck.stack import StackSet

NAME = "smoke-versions"


def version_consistency(host: Host) -> tuple[Finding, ...]:
    """Yield findings about every framework wheel installed with gpucheck; one SKIP if there is none."""
    values = stack_check.probe(host)
    found: list[Finding] = []
    builds: dict[str, tuple[str, str]] | None = None
    rest = values.libraries, values.capabilities, values.driver.loaded_version, values.arch, None
    for wheel in (*values.wheels, None):  # libraries are also evaluated without a wheel
        for finding in evaluate_wheels((wheel,) if wheel else (), *rest):
            one = replace(finding, check=NAME)
            if wheel and _is_of_build(one):
                builds = builds_for(host) if builds is None else builds
                one = _of_build(one, wheel, builds.get(wheel.name))
            found += () if one in found else (one,)
    return tuple(found) if values.capabilities and found else (_nothing(values),)


def refused(findings: tuple[Finding, ...]) -> dict[str, Finding]:
    """Framework -> the first finding for which it cannot train on this host's GPUs."""
    return {str(one.values["framework"]): one for one in reversed(findings) if _is_of_build(one)}


def _is_of_build(finding: Finding) -> bool:
    """Whether the build of a framework cannot run here; seen begins with the name of a library that is wrong."""
    return finding.verdict is Verdict.FAIL and str(finding.seen).partition(" ")[0] not in LIBRARIES


def builds_for(host: Host) -> dict[str, tuple[str, str]]:
    """Return framework -> the build and the driver that the resolver chooses for this host; empty if it cannot."""
    from gpucheck.stack import StackSet, UnknownInput, resolve

    system = host.system()
    gpus = [device.device_id for device in host.pci() if device.is_nvidia_gpu and gpu_by_pci_id(device.device_id)]
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
    "arch-not-in-build": ("run.framework-lacks-code", "run.framework-lacks-code-unresolved"),
    "library-mismatch": ("run.framework-needs-driver", "run.framework-needs-driver-unresolved"),
}


def _of_build(finding: Finding, wheel: Wheel, chosen: tuple[str, str] | None) -> Finding:
    """Return the finding of the stack check with the build to install and its driver, if the resolver chooses one."""
    resolved, unresolved = CODES[finding.cause or ""]
    subject = Subject(check=NAME, name=finding.subject, evidence=finding.evidence)
    values: dict[str, Any] = {"framework": wheel.name, "version": wheel.version}
    if chosen is None:
        return subject.fails(unresolved, finding.seen, finding.wanted, **values)
    values |= dict(zip(("build", "driver"), chosen, strict=True))
    return subject.fails(resolved, finding.seen, finding.wanted, **values)


def _nothing(values: stack_check.Values) -> Finding:
    wheels = ", ".join(f"{wheel.name} {wheel.version}" for wheel in values.wheels) or "no framework"
    gpus = len(values.capabilities)
    code = "run.framework-without-gpu" if values.wheels else "run.framework-not-installed"
    seen = f"{wheels}, {gpus} GPU{'' if gpus == 1 else 's'}"
    return Subject(check=NAME).skips(code, seen, "a CUDA build and a GPU")
