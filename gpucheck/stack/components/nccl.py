"""The NCCL library of the host."""

import re
from collections.abc import Iterator
from typing import Any

from gpucheck.knowledge import GpuModel, tables
from gpucheck.knowledge.packages import NcclSystemBuild, packages
from gpucheck.knowledge.tables import NcclBuild
from gpucheck.stack.components.base import SYSTEM, Choice, Component
from gpucheck.stack.components.torch import Reference, reference_torch
from gpucheck.stack.packages import component, package
from gpucheck.stack.rules import libraries
from gpucheck.stack.rules.archive import r22_absent
from gpucheck.stack.rules.driver import is_a
from gpucheck.stack.types import Clash, Fact, PlanInput, Reason, Reasons, StackSpec, Target
from gpucheck.stack.versions import major, minor, parse, request

BUILD = re.compile(r"\+cuda\d+\.\d+$")


def r8_nccl(gpu: GpuModel, build: NcclBuild) -> Clash | None:
    """R8: the NCCL build must have machine code for the GPU, which depends on its version and its CUDA major."""
    if libraries.r5_runs(gpu.compute_capability, build.sm):
        return None
    code = " ".join(str(arch) for arch in build.sm)
    one = Fact(is_a(gpu), "cuda-gpus")
    other = Fact(f"NCCL {build.version} for CUDA {build.cuda_major} has code for sm {code}", "nccl-mk, wheel-bytes")
    because = f"NCCL {build.version} built for CUDA {build.cuda_major} cannot run on {gpu.name}"
    return Clash(component="nccl", rule="R8", between=(one, other), because=because)


def choose_nccl(target: Target, toolkit: str, wanted: str, reference: Reference | None) -> tuple[str, Reasons] | Clash:
    """Return the host's NCCL as ``version+cudaX.Y``: torch's version or the next newer one of this CUDA major."""
    requested = request(wanted)
    cuda_major = major(toolkit)
    torch = reference.torch if reference else None
    same = torch.nccl if torch and torch.cuda and major(torch.cuda) == cuda_major and requested.auto else None
    first: Clash | None = None
    builds = {build.version: build for build in tables.nccl().builds if build.cuda_major == cuda_major}
    for pair in _nccl_order(toolkit, same):
        if not requested.matches(pair.version) or requested.build not in ("", f"cuda{pair.cuda}"):
            continue
        build = builds.get(pair.version)
        if build is None:
            continue
        clash = next(filter(None, (r8_nccl(gpu, build) for gpu in target.models)), None)
        if clash is None:
            return f"{pair.version}+cuda{pair.cuda}", _nccl_reasons(pair, build, same, reference, toolkit)
        first = first or clash
    known = tuple(pair.version for pair in packages().nccl.builds)
    built = int(major(requested.build.removeprefix("cuda"))) if requested.build else cuda_major
    other = built if built != cuda_major else None
    seen = first or _seen_nccl(target, toolkit, wanted)
    return seen or libraries.no_release("nccl", "NCCL", "R8", wanted, cuda_major, known, other)


def _seen_nccl(target: Target, toolkit: str, wanted: str) -> tuple[str, Reasons] | Clash | None:
    """Return a stated version missing from the tables, with the machine code of the nearest older build."""
    table, cuda_major = packages().nccl, major(toolkit)
    names = table.apt if target.os.family == "debian" else table.dnf
    seen = libraries.seen_version(target.os.repository or "", target, names, wanted, table.revision)
    version = seen or _stated_build(wanted, toolkit)
    if version is None or not BUILD.search(version) or major(version.partition("+cuda")[2]) != cuda_major:
        return None
    plain, same = version.partition("+")[0], [row for row in tables.nccl().builds if row.cuda_major == cuda_major]
    older = [row for row in same if libraries.numeric(row.version) <= libraries.numeric(plain)]
    near = max(older, key=lambda row: libraries.numeric(row.version), default=None)
    if near is None:
        return None
    clash = next(filter(None, (r8_nccl(gpu, near) for gpu in target.models)), None)
    carried = f"its machine code is assumed to be that of {near.version}"
    if not seen and not request(wanted).build:
        carried += f", and it to be built for CUDA {minor(toolkit)}; state another build as nccl: {plain}+cuda13.0"
    return clash or (version, (libraries.seen_reason("nccl", version, carried, seen=bool(seen)),))


def _stated_build(wanted: str, toolkit: str) -> str | None:
    """Return an exact version with its build, without one that for the toolkit; None if one for its major is known."""
    version, build = libraries.stated_exactly(wanted, 3), request(wanted).build
    known = {pair.version for pair in packages().nccl.builds if major(pair.cuda) == major(toolkit)}
    if version is None or (not build and version in known):
        return None
    return f"{version}+{build or f'cuda{minor(toolkit)}'}"


def _nccl_order(toolkit: str, same: str | None) -> list[NcclSystemBuild]:
    """Return system builds of the toolkit's CUDA major: torch's version or the next newer one first, else the newest.

    An older torch therefore gets no newer library. Of one version, the build for the toolkit's CUDA minor is first.
    """
    pairs = [pair for pair in packages().nccl.builds if major(pair.cuda) == major(toolkit)]

    def place(pair: NcclSystemBuild) -> tuple[bool, int, bool]:
        number = libraries.numeric(pair.version)
        older = same is None or number < libraries.numeric(same)
        return older, -number if older else number, pair.cuda != minor(toolkit)

    return sorted(pairs, key=place)


def _nccl_reasons(
    pair: NcclSystemBuild, build: NcclBuild, same: str | None, reference: Reference | None, toolkit: str
) -> Reasons:
    if pair.version == same and reference:
        text = reference.words + (": all ranks of a job should load one NCCL" if reference.own else "")
    elif same and reference and libraries.numeric(pair.version) > libraries.numeric(same):
        text = f"the next newer system build: {reference.words} is {same}"
    else:
        text = f"newest system build for CUDA {major(pair.cuda)} with code for these GPUs"
    reasons = [Reason(component="nccl", because=text, rule="R8", source="nccl-mk, wheel-bytes")]
    if parse(pair.cuda) > parse(minor(toolkit)):
        text = f"built with CUDA {pair.cuda}: every driver for CUDA {major(pair.cuda)} runs it, as it has machine code"
        reasons.append(Reason(component="nccl", because=text, rule="R1", source="cuda-compat"))
    if "carried over" in build.basis:
        text = f"its list of machine code was {build.basis}, not read"
        reasons.append(Reason(component="nccl", because=text, rule="R8", source="nccl-mk", confirmed=False))
    if pair.unconfirmed:
        text = pair.unconfirmed
        reasons.append(Reason(component="nccl", because=text, rule="R8", source="cuda-repo", confirmed=False))
    return tuple(reasons)


class Nccl(Component):
    """NCCL, built for one CUDA major; ``2.29.3+cuda12.9`` is its version with the build."""

    name = part = "nccl"
    title = "NCCL"
    place, turn = 50, 50
    nvidia = SYSTEM
    default = "auto"
    built_for = "cuda"

    def contradictions(self, spec: StackSpec) -> Iterator[tuple[tuple[str, str], str]]:
        yield from libraries.without_toolkit(self.name, spec)
        toolkit, build = request(spec.cuda).prefix, request(spec.nccl).build
        if toolkit and build.startswith("cuda") and build[4:].partition(".")[0] != str(toolkit[0]):
            text = f"cuda is {spec.cuda}, and this build is for {build}. Both must be of one CUDA major."
            yield ("cuda", self.name), text

    def choose(self, choice: Choice) -> Any:
        toolkit, spec, archive = choice.chosen["cuda"], choice.spec, choice.archive
        if toolkit is None:
            return libraries.no_toolkit(self.name, spec)
        found = r22_absent(archive, self.name, "NCCL", spec.nccl)
        reference = reference_torch(choice, major(toolkit))
        return choice.settle(found or choose_nccl(choice.target, toolkit, spec.nccl, reference), spec.nccl)

    def packages(self, plan: PlanInput) -> dict[str, Any]:
        """Return the packages; the CUDA build follows the package revision: 2.29.3+cuda12.9 -> 2.29.3-1+cuda12.9."""
        if plan.stack.nccl is None:
            return component([])
        table = packages().nccl
        version, _, build = plan.stack.nccl.partition("+")
        names = table.apt if plan.apt else table.dnf
        return component([package(plan.system, name, f"{version}-{table.revision}+{build}") for name in names])


COMPONENT = Nccl()
