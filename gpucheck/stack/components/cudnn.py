"""The cuDNN library of the host."""

from collections.abc import Iterator
from typing import Any

from gpucheck.knowledge import GpuModel, tables
from gpucheck.knowledge.packages import packages
from gpucheck.knowledge.tables import CudnnRelease
from gpucheck.stack.components.base import SYSTEM, Choice, Component
from gpucheck.stack.components.torch import Reference, reference_torch
from gpucheck.stack.packages import PlanGap, component, package
from gpucheck.stack.rules.archive import r22_absent
from gpucheck.stack.rules.driver import is_a
from gpucheck.stack.rules.libraries import (
    no_release,
    no_toolkit,
    numeric,
    seen_reason,
    seen_version,
    stated_exactly,
    without_toolkit,
)
from gpucheck.stack.types import Clash, Fact, PlanInput, Reason, Reasons, StackSpec, Target
from gpucheck.stack.versions import cc, major, request

# In the names of its packages.
MAJOR = 9


def r7_cudnn(gpu: GpuModel, release: CudnnRelease) -> Clash | None:
    """R7: a newer cuDNN replaces an older one, but its architecture list shrinks: below 7.5 ends at 9.10.2.21."""
    have = cc(gpu.compute_capability)
    if release.min_cc is None or have >= cc(release.min_cc):
        newest_major = cc(release.max_cc)[0] if release.max_cc else None
        if newest_major is None or have[0] <= newest_major:
            return None
        limit = f"cuDNN {release.version} has code up to compute capability {release.max_cc}"
    else:
        limit = f"cuDNN {release.version} has no code below compute capability {release.min_cc}"
    between = (Fact(is_a(gpu), "cuda-gpus"), Fact(limit, "cudnn-matrix, wheel-bytes"))
    because = f"cuDNN {release.version} cannot run on {gpu.name}"
    return Clash(component="cudnn", rule="R7", between=between, because=because)


def choose_cudnn(
    target: Target, cuda_major: int, wanted: str, reference: Reference | None
) -> tuple[str, Reasons] | Clash:
    """Return the host's cuDNN: that of the torch build if its CUDA major is the same, else the newest confirmed."""
    requested = request(wanted)
    torch = reference.torch if reference else None
    same = torch.cudnn if torch and torch.cuda and major(torch.cuda) == cuda_major and requested.auto else None
    first: Clash | None = None
    for release in sorted(tables.cudnn().releases, key=lambda r: (r.version != same, -numeric(r.version))):
        if not requested.matches(release.version) or cuda_major not in release.cuda_majors:
            continue
        if not requested.explicit and release.version != same and cuda_major not in release.confirmed_for:
            continue
        clash = next(filter(None, (r7_cudnn(gpu, release) for gpu in target.models)), None)
        if clash is None:
            return release.version, (_cudnn_reason(release, cuda_major, same, reference),)
        first = first or clash
    return first or _seen_cudnn(target, cuda_major, wanted) or _no_cudnn(wanted, cuda_major)


def _no_cudnn(wanted: str, cuda_major: int) -> Clash:
    """Return the clash; a version before the first one for this CUDA major is for the one before."""
    releases, version = tables.cudnn().releases, stated_exactly(wanted, 4)
    first = min(numeric(row.version) for row in releases if cuda_major in row.cuda_majors)
    earlier = version and major(version) == MAJOR and numeric(version) < first
    known = tuple(row.version for row in releases)
    return no_release("cudnn", "cuDNN", "R7", wanted, cuda_major, known, cuda_major - 1 if earlier else None)


def _seen_cudnn(target: Target, cuda_major: int, wanted: str) -> tuple[str, Reasons] | Clash | None:
    """Return a stated version missing from the tables, with the range of GPUs of the nearest older release."""
    names = [packages().cudnn.apt[0].format(major=cuda_major)]
    seen = seen_version(target.os.repository or "", target, names, wanted, packages().cudnn.revision)
    version = seen or stated_exactly(wanted, 4)
    older = [row for row in tables.cudnn().releases if version and numeric(row.version) < numeric(version)]
    near = max((row for row in older if cuda_major in row.cuda_majors), key=lambda r: numeric(r.version), default=None)
    if version is None or near is None:
        return None
    clash = next(filter(None, (r7_cudnn(gpu, near) for gpu in target.models)), None)
    carried = f"its range of GPUs is assumed to be that of {near.version}"
    return clash or (version, (seen_reason("cudnn", version, carried, seen=bool(seen)),))


def _cudnn_reason(release: CudnnRelease, cuda_major: int, same: str | None, reference: Reference | None) -> Reason:
    if release.version == same and reference:
        text = reference.words + (", so programs that use the host's get the same" if reference.own else "")
    else:
        text = f"newest for CUDA {cuda_major} with code for these GPUs ({release.basis})"
    confirmed = cuda_major in release.confirmed_for
    return Reason(component="cudnn", because=text, rule="R7", source="cudnn-matrix, wheel-bytes", confirmed=confirmed)


class Cudnn(Component):
    """cuDNN, built for one CUDA major."""

    name = part = "cudnn"
    title = "cuDNN"
    place, turn = 40, 40
    nvidia = SYSTEM
    default = "auto"
    built_for = "cuda"

    def contradictions(self, spec: StackSpec) -> Iterator[tuple[tuple[str, str], str]]:
        yield from without_toolkit(self.name, spec)

    def choose(self, choice: Choice) -> Any:
        toolkit, spec, archive = choice.chosen["cuda"], choice.spec, choice.archive
        if toolkit is None:
            return no_toolkit(self.name, spec)
        found = r22_absent(archive, self.name, "cuDNN library", spec.cudnn)
        reference = reference_torch(choice, major(toolkit))
        return choice.settle(found or choose_cudnn(choice.target, major(toolkit), spec.cudnn, reference), spec.cudnn)

    def packages(self, plan: PlanInput) -> dict[str, Any]:
        stack = plan.stack
        if stack.cudnn is None or stack.cuda is None:
            return component([])
        table = packages().cudnn
        if major(stack.cudnn) != MAJOR:
            message = f"the package names of cuDNN {major(stack.cudnn)} are not known"
            raise PlanGap(message, "cudnn-linux", f"cudnn {MAJOR} in stack.yml")
        version = f"{stack.cudnn}-{table.revision}"
        names = table.apt if plan.apt else table.dnf
        return component([package(plan.system, name.format(major=major(stack.cuda)), version) for name in names])


COMPONENT = Cudnn()
