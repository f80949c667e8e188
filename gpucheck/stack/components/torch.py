"""torch: its wheels bring their own CUDA, so only the driver and the GPUs limit them."""

from typing import TYPE_CHECKING, Any

from gpucheck.knowledge import GpuModel, tables
from gpucheck.knowledge.tables import TorchBuild, TorchRelease
from gpucheck.stack.components.base import Choice, Component, plain
from gpucheck.stack.rules.code import r3_ptx_needs_full_driver, r5_runs, r6_wheel_driver
from gpucheck.stack.rules.driver import is_a
from gpucheck.stack.rules.wheels import glibc_clash, not_known, r16_python
from gpucheck.stack.types import Clash, Fact, Reason, Target, TorchChoice
from gpucheck.stack.versions import cc, major, request, sm

if TYPE_CHECKING:
    from gpucheck.stack.stack_set import StackSet


def r11_torch_build(gpu: GpuModel, release: TorchRelease, build: TorchBuild, archs: tuple[int, ...]) -> Clash | None:
    """R11: the build must hold machine code for the GPU."""
    if r5_runs(gpu.compute_capability, archs):
        return None
    newest = r10_newest_torch_with_code(gpu)
    code = " ".join(str(arch) for arch in archs)
    end = f"; torch {newest} is the newest official build that still has it" if newest else ""
    return Clash(
        component="torch",
        rule="R11",
        between=(
            Fact(is_a(gpu), "cuda-gpus"),
            Fact(f"torch {release.version}+{build.build} holds code for sm {code}", "wheel-bytes, torch-build-scripts"),
        ),
        because=f"torch {release.version}+{build.build} has no code for {gpu.name}{end}",
    )


def r10_newest_torch_with_code(gpu: GpuModel) -> str | None:
    """R10: the newest official build with code for a GPU; below 7.5 that is the last with CUDA 12, torch 2.14."""
    for release in reversed(tables.torch().releases):
        for build in release.builds:
            if build.archs and not build.experimental and r5_runs(gpu.compute_capability, build.archs):
                return f"{release.version}+{build.build}"
    return None


def r12_torch_compile(target: Target) -> tuple[Reason, ...]:
    """R12: torch.compile generates GPU code from compute capability 7.0 on."""
    old = next((gpu for gpu in target.models if cc(gpu.compute_capability) < (7, 0)), None)
    if old is None:
        return ()
    text = f"{is_a(old)}: torch.compile refuses GPUs below 7.0, so everything runs eagerly"
    return (Reason(component="torch", because=text, rule="R12", source="wheel-bytes"),)


def choose_torch(target: Target, driver: str, wanted: str) -> tuple[TorchChoice, tuple[Reason, ...]] | Clash:
    """The newest torch whose build runs on every GPU and on this driver; the plain wheel before an index build."""
    asked = request(wanted)
    if asked.build == "cpu":
        return _cpu_torch(target, wanted)
    first: Clash | None = None
    for release in reversed(tables.torch().releases):
        if not asked.matches(release.version):
            continue
        for build, archs in _builds(target, release, asked.build):
            python = r16_python(target.os, release.pythons, release.glibc)
            if python is None:
                clash: Clash | None = glibc_clash("torch", f"torch {release.version}", release.glibc, target.os)
            else:
                clash = _torch_clash(target, driver, release, build, archs)
            if clash is None and python is not None:
                return _torch_choice(target, release, build, python)
            first = first or clash
    return first or not_known("torch", wanted, "wheel-bytes, torch-build-scripts", target, _known())


def _builds(target: Target, release: TorchRelease, build: str) -> list[tuple[TorchBuild, tuple[int, ...]]]:
    """The builds of a release worth trying with their machine code, the plain wheel first."""
    if target.arch == "sbsa":
        # R20: the plain aarch64 wheel is CPU only up to 2.10.0; index builds for aarch64 were not read.
        arm = release.aarch64
        fits = [b for b in release.builds if b.build == arm.build and build in ("", b.build)]
        return [(b, arm.archs) for b in fits]
    known = [b for b in release.builds if b.archs and b.cudnn and build in ("", b.build)]
    usable = [b for b in known if not b.experimental or build]
    return [(b, b.archs or ()) for b in sorted(usable, key=lambda b: (b.origin != "pypi", -int(b.build[2:])))]


def _torch_clash(
    target: Target, driver: str, release: TorchRelease, build: TorchBuild, archs: tuple[int, ...]
) -> Clash | None:
    for gpu in target.models:
        clash = r11_torch_build(gpu, release, build, archs)
        if clash is None:
            continue
        if build.ptx and cc(gpu.compute_capability) > sm(build.ptx):
            clash = r3_ptx_needs_full_driver(build.cuda, driver, "torch", f"torch {release.version}+{build.build}")
        if clash:
            return clash
    return r6_wheel_driver(build.cuda, driver, "torch", f"torch {release.version}+{build.build}")


def _torch_choice(
    target: Target, release: TorchRelease, build: TorchBuild, python: str
) -> tuple[TorchChoice, tuple[Reason, ...]]:
    choice = TorchChoice(
        version=release.version,
        build=build.build,
        python=python,
        origin=build.origin,
        cuda=build.cuda,
        cudnn=build.cudnn,
        nccl=build.nccl,
    )
    where = "the plain wheel" if build.origin == "pypi" else f"from PyTorch's own wheel index, sub-index {build.build}"
    confirmed = build.basis in ("bytes", "build-scripts")
    text = f"newest official build with code for every GPU here; {where} (architecture list: {build.basis})"
    reasons = [
        Reason(
            component="torch", because=text, rule="R11", source="wheel-bytes, torch-build-scripts", confirmed=confirmed
        )
    ]
    if python != target.os.python:
        text = f"needs an added Python {python}: {target.os.name} has {target.os.python}, and there is no wheel for it"
        reasons.append(Reason(component="torch", because=text, rule="R16", source="pypi-meta"))
    return choice, (*reasons, *r12_torch_compile(target))


def _cpu_torch(target: Target, wanted: str) -> tuple[TorchChoice, tuple[Reason, ...]] | Clash:
    asked = request(wanted)
    for release in reversed(tables.torch().releases):
        python = r16_python(target.os, release.pythons, release.glibc)
        if asked.matches(release.version) and python:
            text = "CPU build as asked for: no GPU limits it, and no GPU is used by it"
            choice = TorchChoice(version=release.version, build="cpu", python=python, origin="index")
            return choice, (Reason(component="torch", because=text, rule="R16", source="pypi-meta"),)
    return not_known("torch", wanted, "pypi-meta", target, _known())


class Torch(Component):
    """The wheel and its build, ``2.14.1+cu126``."""

    name = title = "torch"
    place, turn = 90, 10
    default = "auto"
    required = True

    def versions(self) -> tuple[str, ...]:
        return _known()

    def newest_first(self, requested: str) -> tuple[str, ...]:
        asked = request(requested)
        if asked.none:
            return ()
        return (requested,) if asked.build else tuple(t for t in builds() if asked.matches(plain(t)))

    def choose(self, choice: Choice) -> Any:
        """The newest build that runs on every GPU and on this driver."""
        return choice.settle(choose_torch(choice.target, choice.driver.version, choice.spec.torch), choice.spec.torch)

    def value(self, stack: "StackSet") -> str | None:
        return f"{stack.torch.version}+{stack.torch.build}" if stack.torch else None

    def label(self, stack: "StackSet") -> str:
        torch = stack.torch
        return f"{torch.version}+{torch.build} on Python {torch.python}" if torch else "none"


def builds() -> tuple[str, ...]:
    """``2.14.1+cu126`` of every build with a known architecture list: newest first, the plain wheel before others."""
    found = []
    for release in reversed(tables.torch().releases):
        usable = [b for b in release.builds if b.archs and b.cudnn and not b.experimental]
        usable.sort(key=lambda build: (build.origin != "pypi", -int(build.build[2:])))
        found += [f"{release.version}+{build.build}" for build in usable]
        arm = f"{release.version}+{release.aarch64.build}"
        if release.aarch64.archs and arm not in found:
            found.append(arm)
    return tuple(found)


def reference_torch(choice: Choice, cuda_major: int) -> TorchChoice | None:
    """The torch whose libraries the host's own follow: the one of the set if it is built for this CUDA major.

    Otherwise the newest official build for these GPUs, also if torch is not requested: an older torch must not bring
    newer libraries.
    """
    torch: TorchChoice | None = choice.chosen["torch"]
    if torch is not None and torch.cuda is not None and major(torch.cuda) == cuda_major:
        return torch
    found = choose_torch(choice.target, choice.driver.version, "auto")
    return None if isinstance(found, Clash) else found[0]


def _known() -> tuple[str, ...]:
    return tuple(release.version for release in tables.torch().releases)


COMPONENT = Torch()
