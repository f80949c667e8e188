"""The CUDA toolkit of the host."""

from collections.abc import Iterator
from typing import Any

import msgspec

from gpucheck.knowledge import GpuModel, tables
from gpucheck.knowledge.packages import packages
from gpucheck.knowledge.tables import Toolkit
from gpucheck.stack.components.base import SYSTEM, Choice, Component
from gpucheck.stack.packages import component, file, package
from gpucheck.stack.rules.archive import r22_cuda
from gpucheck.stack.rules.driver import is_a, r1_driver_floor, r2_full_function, r24_cuda
from gpucheck.stack.seen import seen_reason, seen_version
from gpucheck.stack.types import Clash, Fact, PlanInput, Reason, Reasons, StackSpec, Target
from gpucheck.stack.versions import cc, major, minor, parse, request

PROFILE = 'export PATH="/usr/local/cuda/bin${PATH:+:${PATH}}"\n'
# Fixed in 13.2.2; trap 5 of the release notes: wrong results from cuBLAS NVFP4 and from reconverging branches.
KNOWN_BAD_CUDA = {"13.2.1": "has wrong-result bugs in cuBLAS NVFP4 and in the compiler, fixed in 13.2.2"}


def r9_cuda_window(gpu: GpuModel, toolkit: Toolkit) -> Clash | None:
    """R9: a GPU works only with toolkits that have a code generator for it, from the first to the last one."""
    have = cc(gpu.compute_capability)
    if have < cc(toolkit.min_cc):
        last = f"; CUDA {gpu.max_cuda} is its last" if gpu.max_cuda else ""
        fact = Fact(f"{is_a(gpu)}{last}", "arch-matrix")
        other = Fact(f"CUDA {minor(toolkit.version)} builds for compute capability {toolkit.min_cc} and newer", "ptxas")
        because = f"CUDA {toolkit.version} has no code generator for {gpu.name}"
    elif parse(toolkit.version) < parse(gpu.min_cuda_native) and have > cc(toolkit.max_cc):
        fact = Fact(f"{is_a(gpu)}; CUDA {gpu.min_cuda_native} is the first with it", "cuda-gpus")
        other = Fact(f"CUDA {minor(toolkit.version)} builds up to compute capability {toolkit.max_cc}", "ptxas")
        because = f"CUDA {toolkit.version} is older than {gpu.name}"
    else:
        return None
    return Clash(component="cuda", rule="R9", between=(fact, other), because=because)


def choose_cuda(target: Target, driver: str, wanted: str, *, full: bool) -> tuple[Toolkit, Reasons] | Clash:
    """Return the newest toolkit that every GPU and the driver allow.

    full: only toolkits whose exact minimum driver (R2) is known and met. Otherwise the minimum of the CUDA major (R1)
    is enough, as for a toolkit that is requested by version. A clash of R24 means that no other rule excludes it.
    """
    requested = request(wanted)
    first: Clash | None = None
    lacking: Clash | None = None
    for toolkit in reversed(tables.cuda().toolkits):
        if not requested.matches(toolkit.version) or toolkit.confidence == "unconfirmed":
            continue
        clash = _toolkit_clash(target, driver, toolkit, full=full)
        if clash is None and toolkit.version in KNOWN_BAD_CUDA and requested.version != toolkit.version:
            continue
        if clash is None:
            lacking = lacking or r24_cuda(target, toolkit)
            if lacking is None:
                return toolkit, _cuda_reasons(target, driver, toolkit)
        first = first or clash
    if lacking is None and first is None:
        seen = _seen_cuda(target, driver, wanted, full=full)
        if seen is not None:
            return seen
    return (
        lacking
        or first
        or Clash(
            component="cuda",
            rule="R2",
            between=(
                Fact(f"CUDA {wanted} is requested", "the specification"),
                Fact("no such toolkit is in the tables, or nothing about it is confirmed", "cuda-rn"),
            ),
            because=f"no CUDA toolkit {wanted} is known",
            unknown=True,
        )
    )


def _seen_cuda(target: Target, driver: str, wanted: str, *, full: bool) -> tuple[Toolkit, Reasons] | Clash | None:
    """Return a stated toolkit that is missing from the tables, if they have its minor release."""
    table, requested = packages().cuda, request(wanted)
    if len(requested.prefix) < 3:
        return None
    name = table.package.format(dash="-".join(str(number) for number in requested.prefix[:2]))
    version = seen_version(target.os.repository or "", target, [name], wanted, table.revision)
    toolkit = _derived(version) if version else None
    if toolkit is None or version is None:
        return None
    clash = _toolkit_clash(target, driver, toolkit, full=full)
    carried = f"its drivers and GPUs are assumed to be those of {toolkit.note}"
    return clash or (toolkit, (*_cuda_reasons(target, driver, toolkit), seen_reason("cuda", version, carried)))


def _derived(version: str) -> Toolkit | None:
    """Return a toolkit missing from the tables as a copy of the newest of its minor release, named in the note."""
    same = [row for row in tables.cuda().toolkits if minor(row.version) == minor(version)]
    if not same:
        return None
    return msgspec.structs.replace(same[-1], version=version, note=same[-1].version)


def _toolkit_clash(target: Target, driver: str, toolkit: Toolkit, *, full: bool) -> Clash | None:
    for gpu in target.models:
        clash = r9_cuda_window(gpu, toolkit)
        if clash:
            return clash
    clash = r1_driver_floor(major(toolkit.version), driver, "cuda", f"CUDA {toolkit.version}")
    return clash or (r2_full_function(toolkit, driver) if full else None)


def _cuda_reasons(target: Target, driver: str, toolkit: Toolkit) -> Reasons:
    held = next((gpu for gpu in target.models if gpu.max_cuda), None)
    if held:
        text = f"{is_a(held)}: CUDA {held.max_cuda} is its last"
        why = Reason(component="cuda", because=text, rule="R9", source="ptxas, arch-matrix")
    else:
        text = f"newest toolkit that driver {driver} supports completely (it needs {toolkit.driver_full})"
        why = Reason(component="cuda", because=text, rule="R2", source="cuda-rn")
    reasons = [why]
    if r2_full_function(toolkit, driver):
        text = f"with driver {driver} it runs by minor version compatibility: no PTX JIT, no features of newer drivers"
        reasons.append(Reason(component="cuda", because=text, rule="R3", source="cuda-compat", confirmed=False))
    separate = r21_toolkit_without_driver(toolkit)
    if separate:
        reasons.append(separate)
    if toolkit.version in KNOWN_BAD_CUDA:
        text = f"{toolkit.version} {KNOWN_BAD_CUDA[toolkit.version]}"
        reasons.append(Reason(component="cuda", because=text, source="torch-2.14.1-notes"))
    return tuple(reasons)


def r21_toolkit_without_driver(toolkit: Toolkit) -> Reason | None:
    """R21: from 13.4 the toolkit's packages do not include a driver; every plan names the driver itself."""
    if parse(toolkit.version) < parse("13.4"):
        return None
    text = "from CUDA 13.4 toolkit and driver are separate packages: the plan names the driver itself"
    return Reason(component="cuda", because=text, rule="R21", source="cuda-rn")


class Cuda(Component):
    """The toolkit; cuDNN and NCCL are built for its major version."""

    name = part = "cuda"
    title = "CUDA toolkit"
    place, turn = 30, 30
    nvidia = SYSTEM
    in_archive = ("debian",)
    default = "auto"

    def choose(self, choice: Choice) -> Any:
        spec, archive = choice.spec, choice.archive
        if request(spec.cuda).none:
            return None
        wanted = spec.cuda if archive is None else r22_cuda(archive, spec.cuda)
        if isinstance(wanted, Clash):
            return wanted
        found = choose_cuda(choice.target, choice.driver.version, wanted, full=choice.full)
        if isinstance(found, Clash):
            # A toolkit missing from the directory must not exclude the driver too; so this comes last.
            left_out = found.rule == "R24" and not choice.full and not _stated(spec)
            return choice.settle(found, spec.cuda) if left_out else found
        toolkit, reasons = found
        choice.reasons += reasons
        return toolkit.version

    def packages(self, plan: PlanInput) -> dict[str, Any]:
        cuda, system = plan.stack.cuda, plan.system
        if plan.archive:
            rows = plan.archive.cuda_packages if cuda else ()
            return {
                "packages": [package(system, row.name, row.version) for row in rows],
                "holds": [row.name for row in rows if row.held],
            }
        if cuda is None:
            return component([])
        table = packages().cuda
        name = table.package.format(dash=minor(cuda).replace(".", "-"))
        found = [package(system, name, f"{cuda}-{table.revision}")]
        common = table.el_config_common.get(minor(cuda))
        if system.family == "redhat" and common:
            found.append(package(system, "cuda-toolkit-config-common", common))
        return component(found)

    def files(self, plan: PlanInput) -> Iterator[dict[str, Any]]:
        """Yield the profile with the path of its programs; a distribution's nvcc is in the path already."""
        if plan.stack.cuda and not plan.archive:
            yield file("/etc/profile.d/gpucheck-cuda.sh", PROFILE)


def _stated(spec: StackSpec) -> bool:
    """Return whether the specification states the toolkit, or a library that is built for one."""
    from gpucheck.stack.components import COMPONENTS

    keys = ["cuda", *(row.name for row in COMPONENTS if row.built_for == "cuda")]
    return any(request(getattr(spec, key)).explicit for key in keys)


COMPONENT = Cuda()
