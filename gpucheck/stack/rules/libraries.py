"""Rules about the host's own CUDA toolkit, cuDNN and NCCL."""

from gpucheck.knowledge import GpuModel, code_runs, tables
from gpucheck.knowledge.packages import NcclSystemBuild, packages
from gpucheck.knowledge.tables import CudnnRelease, NcclBuild, Toolkit
from gpucheck.stack.rules.driver import is_a, r1_driver_floor, r2_full_function
from gpucheck.stack.rules.folders import r24_cuda
from gpucheck.stack.types import Clash, Fact, Reason, Target, TorchChoice
from gpucheck.stack.versions import cc, major, minor, parse, request

# Fixed in 13.2.2; trap 5 of the release notes: wrong results from cuBLAS NVFP4 and from reconverging branches.
KNOWN_BAD_CUDA = {"13.2.1": "has wrong-result bugs in cuBLAS NVFP4 and in the compiler, fixed in 13.2.2"}


def r5_runs(capability: str, archs: tuple[int, ...]) -> bool:
    """R5: machine code for X.Y runs on X.Z with Z >= Y, and never on another X."""
    return code_runs(capability, archs)


def r9_cuda_window(gpu: GpuModel, toolkit: Toolkit) -> Clash | None:
    """R9: the first and the last toolkit with a code generator for a GPU."""
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


def choose_cuda(target: Target, driver: str, wanted: str, *, full: bool) -> tuple[Toolkit, tuple[Reason, ...]] | Clash:
    """The newest toolkit that every GPU and the driver allow.

    full: only toolkits whose exact driver floor (R2) is known and met; else the floor of the CUDA major (R1) is enough,
    which is what somebody gets who asks for such a toolkit by version. A clash of R24: nothing else stands against it.
    """
    asked = request(wanted)
    first: Clash | None = None
    lacking: Clash | None = None
    for toolkit in reversed(tables.cuda().toolkits):
        if not asked.matches(toolkit.version) or toolkit.confidence == "unconfirmed":
            continue
        clash = _toolkit_clash(target, driver, toolkit, full=full)
        if clash is None and toolkit.version in KNOWN_BAD_CUDA and asked.version != toolkit.version:
            continue
        if clash is None:
            lacking = lacking or r24_cuda(target, toolkit)
            if lacking is None:
                return toolkit, _cuda_reasons(target, driver, toolkit)
        first = first or clash
    return (
        lacking
        or first
        or Clash(
            component="cuda",
            rule="R2",
            between=(
                Fact(f"CUDA {wanted} is asked for", "the wish"),
                Fact("no such toolkit is in the tables, or nothing about it is confirmed", "cuda-rn"),
            ),
            because=f"no CUDA toolkit {wanted} is known",
            unknown=True,
        )
    )


def _toolkit_clash(target: Target, driver: str, toolkit: Toolkit, *, full: bool) -> Clash | None:
    for gpu in target.models:
        clash = r9_cuda_window(gpu, toolkit)
        if clash:
            return clash
    clash = r1_driver_floor(major(toolkit.version), driver, "cuda", f"CUDA {toolkit.version}")
    return clash or (r2_full_function(toolkit, driver) if full else None)


def _cuda_reasons(target: Target, driver: str, toolkit: Toolkit) -> tuple[Reason, ...]:
    held = next((gpu for gpu in target.models if gpu.max_cuda), None)
    if held:
        text = f"{is_a(held)}: CUDA {held.max_cuda} is its last"
        why = Reason(component="cuda", because=text, rule="R9", source="ptxas, arch-matrix")
    else:
        text = f"newest toolkit that driver {driver} runs in full (it needs {toolkit.driver_full})"
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
    """R21: from 13.4 the toolkit's packages bring no driver, so a plan has to name it (and always does here)."""
    if parse(toolkit.version) < parse("13.4"):
        return None
    text = "from CUDA 13.4 toolkit and driver are separate packages: the plan names the driver itself"
    return Reason(component="cuda", because=text, rule="R21", source="cuda-rn")


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
    return Clash(
        component="cudnn",
        rule="R7",
        between=(Fact(is_a(gpu), "cuda-gpus"), Fact(limit, "cudnn-matrix, wheel-bytes")),
        because=f"cuDNN {release.version} cannot run on {gpu.name}",
    )


def choose_cudnn(
    target: Target, cuda_major: int, wanted: str, torch: TorchChoice | None
) -> tuple[str, tuple[Reason, ...]] | Clash:
    """The host's cuDNN: that of the torch build where its CUDA major is the same, else the newest confirmed one."""
    asked = request(wanted)
    same = torch.cudnn if torch and torch.cuda and major(torch.cuda) == cuda_major and asked.auto else None
    first: Clash | None = None
    for release in sorted(tables.cudnn().releases, key=lambda r: (r.version != same, -_order(r.version))):
        if not asked.matches(release.version) or cuda_major not in release.cuda_majors:
            continue
        if not asked.explicit and release.version != same and cuda_major not in release.confirmed_for:
            continue
        clash = next(filter(None, (r7_cudnn(gpu, release) for gpu in target.models)), None)
        if clash is None:
            return release.version, (_cudnn_reason(release, cuda_major, same, torch),)
        first = first or clash
    return first or _no_release("cudnn", "cuDNN", wanted, cuda_major)


def _order(version: str) -> int:
    numbers = (*parse(version).release, 0, 0, 0, 0)[:4]
    return int("".join(f"{number:05d}" for number in numbers))


def _cudnn_reason(release: CudnnRelease, cuda_major: int, same: str | None, torch: TorchChoice | None) -> Reason:
    if release.version == same and torch:
        text = (
            f"what torch {torch.version}+{torch.build} brings along, so a program that loads the host's finds the same"
        )
    else:
        text = f"newest for CUDA {cuda_major} with code for these GPUs ({release.basis})"
    confirmed = cuda_major in release.confirmed_for
    return Reason(component="cudnn", because=text, rule="R7", source="cudnn-matrix, wheel-bytes", confirmed=confirmed)


def r8_nccl(gpu: GpuModel, build: NcclBuild) -> Clash | None:
    """R8: the build must hold machine code for the GPU; which depends on its version and its CUDA major."""
    if r5_runs(gpu.compute_capability, build.sm):
        return None
    code = " ".join(str(arch) for arch in build.sm)
    return Clash(
        component="nccl",
        rule="R8",
        between=(
            Fact(is_a(gpu), "cuda-gpus"),
            Fact(f"NCCL {build.version} for CUDA {build.cuda_major} holds code for sm {code}", "nccl-mk, wheel-bytes"),
        ),
        because=f"NCCL {build.version} built for CUDA {build.cuda_major} cannot run on {gpu.name}",
    )


def choose_nccl(
    target: Target, toolkit: str, wanted: str, torch: TorchChoice | None
) -> tuple[str, tuple[Reason, ...]] | Clash:
    """The host's NCCL as ``version+cudaX.Y``: torch's version where it exists for this CUDA major, else the newest."""
    asked = request(wanted)
    cuda_major = major(toolkit)
    same = torch.nccl if torch and torch.cuda and major(torch.cuda) == cuda_major and asked.auto else None
    first: Clash | None = None
    for pair in _nccl_order(toolkit, same):
        if not asked.matches(pair.version) or asked.build not in ("", f"cuda{pair.cuda}"):
            continue
        build = next(
            (b for b in tables.nccl().builds if b.version == pair.version and b.cuda_major == cuda_major), None
        )
        if build is None:
            continue
        clash = next(filter(None, (r8_nccl(gpu, build) for gpu in target.models)), None)
        if clash is None:
            return f"{pair.version}+cuda{pair.cuda}", _nccl_reasons(pair, build, same, torch, toolkit)
        first = first or clash
    return first or _no_release("nccl", "NCCL", wanted, cuda_major)


def _nccl_order(toolkit: str, same: str | None) -> list[NcclSystemBuild]:
    """System builds of the toolkit's CUDA major: torch's version first, then newest; its own CUDA minor first."""
    pairs = [pair for pair in packages().nccl.builds if major(pair.cuda) == major(toolkit)]
    return sorted(pairs, key=lambda p: (p.version != same, -_order(p.version), p.cuda != minor(toolkit)))


def _nccl_reasons(
    pair: NcclSystemBuild, build: NcclBuild, same: str | None, torch: TorchChoice | None, toolkit: str
) -> tuple[Reason, ...]:
    if pair.version == same and torch:
        text = f"the version torch {torch.version}+{torch.build} brings along: all ranks of a job should load one NCCL"
    else:
        text = f"newest system build for CUDA {major(pair.cuda)} with code for these GPUs"
    reasons = [Reason(component="nccl", because=text, rule="R8", source="nccl-mk, wheel-bytes")]
    if parse(pair.cuda) > parse(minor(toolkit)):
        text = (
            f"built with CUDA {pair.cuda}: every driver for CUDA {major(pair.cuda)} runs it, as it holds machine code"
        )
        reasons.append(Reason(component="nccl", because=text, rule="R1", source="cuda-compat"))
    if "carried over" in build.basis:
        text = f"its list of machine code was {build.basis}, not read"
        reasons.append(Reason(component="nccl", because=text, rule="R8", source="nccl-mk", confirmed=False))
    if pair.unconfirmed:
        reasons.append(
            Reason(component="nccl", because=pair.unconfirmed, rule="R8", source="cuda-repo", confirmed=False)
        )
    return tuple(reasons)


def _no_release(component: str, name: str, wanted: str, cuda_major: int) -> Clash:
    asked = request(wanted)
    known = [r.version for r in tables.cudnn().releases] if component == "cudnn" else _nccl_versions()
    return Clash(
        component=component,
        rule="R7" if component == "cudnn" else "R8",
        between=(
            Fact(f"{name} {wanted} is asked for", "the wish"),
            Fact(f"no such release for CUDA {cuda_major} is in the tables", "cudnn-matrix, nccl-mk"),
        ),
        because=f"no {name} {wanted} for CUDA {cuda_major} is known",
        unknown=not any(asked.matches(version) for version in known),
    )


def _nccl_versions() -> list[str]:
    return [pair.version for pair in packages().nccl.builds]
