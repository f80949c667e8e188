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
from gpucheck.stack.rules.libraries import seen_reason, seen_version, stated_exactly
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
    is enough, as for a toolkit that is requested by version, and the one nearest to the driver is preferred. A clash of
    R24 means that no other rule excludes it.
    """
    requested = request(wanted)
    first: Clash | None = None
    lacking: Clash | None = None
    nearest, toolkits = not full and not requested.explicit, tables.cuda().toolkits[::-1]
    if nearest:  # the oldest minor release first, of each the newest first
        toolkits = tuple(sorted(toolkits, key=lambda row: (parse(minor(row.version)), -parse(row.version).micro)))
    for toolkit in toolkits:
        if not requested.matches(toolkit.version):
            continue
        # Its driver is not known, so it must be named: by its minor release, or exactly.
        if toolkit.driver_full is None and len(requested.prefix) < 2:
            continue
        absent = r24_cuda(target, toolkit)
        if nearest and absent is None and not r2_full_function(toolkit, driver):
            # Tried before, among those that the driver supports completely.
            continue
        clash = _toolkit_clash(target, driver, toolkit, full=full)
        if clash is None and toolkit.version in KNOWN_BAD_CUDA and requested.version != toolkit.version:
            continue
        if clash is None:
            if absent is None:
                return toolkit, _cuda_reasons(target, driver, toolkit)
            lacking = absent if nearest else lacking or absent
        # Without full function, why those with it are excluded is more useful than why the others are.
        first = first or (None if nearest else clash)
    if lacking is None and first is None:
        seen = _seen_cuda(target, driver, wanted, full=full)
        if seen is not None:
            return seen
    stated = Fact(f"CUDA {wanted} is requested", "the specification")
    fact = Fact("no such toolkit is in the tables, or nothing about it is confirmed", "cuda-rn")
    because, unknown = f"no CUDA toolkit {wanted} is known", not nearest
    none = Clash(component="cuda", rule="R2", between=(stated, fact), because=because, unknown=unknown)
    return lacking or first or none


def _seen_cuda(target: Target, driver: str, wanted: str, *, full: bool) -> tuple[Toolkit, Reasons] | Clash | None:
    """Return a stated toolkit that is missing from the tables, if they have its minor release or none as new."""
    table, version = packages().cuda, stated_exactly(wanted, 3)
    toolkit = _derived(version) if version else None
    if toolkit is None or version is None:
        return None
    name = table.package.format(dash=minor(version).replace(".", "-"))
    seen = seen_version(target.os.repository or "", target, [name], wanted, table.revision)
    clash = _toolkit_clash(target, driver, toolkit, full=full) or r24_cuda(target, toolkit)
    reason = seen_reason(
        "cuda", version, f"its drivers and GPUs are assumed to be those of {toolkit.note}", seen=bool(seen)
    )
    return clash or (toolkit, (*_cuda_reasons(target, driver, toolkit), reason))


def _derived(version: str) -> Toolkit | None:
    """Return a toolkit missing from the tables as a copy of the newest of its minor release, named in the note.

    A newer minor release is a copy of the newest toolkit, without a driver of its own. None for any other: a number
    between known ones was not released, and a new major needs a newer driver.
    """
    known = tables.cuda().toolkits
    same = [row for row in known if minor(row.version) == minor(version)]
    if same:
        return msgspec.structs.replace(same[-1], version=version, note=same[-1].version)
    newest = known[-1]
    if major(version) != major(newest.version) or parse(version) < parse(newest.version):
        return None
    return msgspec.structs.replace(newest, version=version, note=newest.version, driver_branch=None, driver_full=None)


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
    elif r2_full_function(toolkit, driver):
        needs = toolkit.driver_full or "a driver that is not known"
        text = f"nearest toolkit to driver {driver}; for all of its functions it needs {needs}"
        why = Reason(component="cuda", because=text, rule="R1", source="cuda-rn")
    else:
        text = f"newest toolkit that driver {driver} supports completely (it needs {toolkit.driver_full})"
        why = Reason(component="cuda", because=text, rule="R2", source="cuda-rn")
    reasons = [why]
    later = next((gpu for gpu in target.models if parse(toolkit.version) < parse(gpu.min_cuda_native)), None)
    if later:
        text = (
            f"{is_a(later)}: CUDA {minor(toolkit.version)} builds code for older GPUs of its family alone, which it "
            f"runs; code of its own is built from CUDA {later.min_cuda_native}"
        )
        reasons.append(Reason(component="cuda", because=text, rule="R9", source="ptxas", confirmed=False))
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
    from gpucheck.stack.components import COMPONENTS

    keys = ["cuda", *(row.name for row in COMPONENTS if row.built_for == "cuda")]
    return any(request(getattr(spec, key)).explicit for key in keys)


COMPONENT = Cuda()
