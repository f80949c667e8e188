"""torch: its wheels include CUDA, so only the driver and the GPUs limit them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from gpucheck.knowledge import GpuModel, tables
from gpucheck.knowledge.tables import OperatingSystem, TorchBuild, TorchRelease
from gpucheck.stack.components.base import Choice, Component
from gpucheck.stack.rules import libraries
from gpucheck.stack.rules.driver import is_a
from gpucheck.stack.types import Clash, Fact, Reason, Reasons, StackSet, Target, TorchChoice
from gpucheck.stack.versions import cc, major, request, sm


def r11_torch_build(gpu: GpuModel, release: TorchRelease, build: TorchBuild, archs: tuple[int, ...]) -> Clash | None:
    """R11: the torch build must have machine code for the GPU."""
    if libraries.r5_runs(gpu.compute_capability, archs):
        return None
    newest, plain_wheel = r10_newest_torch_with_code(gpu), r10_newest_torch_with_code(gpu, "pypi")
    code = " ".join(str(arch) for arch in archs)
    end = f"; torch {newest} is the newest official build that has it" if newest else ""
    end += f", torch {plain_wheel} the newest on PyPI" if plain_wheel and plain_wheel != newest else ""
    one = Fact(is_a(gpu), "cuda-gpus")
    other = Fact(f"torch {release.version}+{build.build} has code for sm {code}", "wheel-bytes, torch-build-scripts")
    because = f"torch {release.version}+{build.build} has no code for {gpu.name}{end}"
    return Clash(component="torch", rule="R11", between=(one, other), because=because)


def r10_newest_torch_with_code(gpu: GpuModel, origin: str = "") -> str | None:
    """R10: each GPU has a newest official build with code for it; below 7.5 that is torch 2.14 for CUDA 12."""
    for release in reversed(tables.torch().releases):
        for build in release.builds:
            usable = build.archs and not build.experimental and origin in ("", build.origin)
            if usable and libraries.r5_runs(gpu.compute_capability, build.archs or ()):
                return f"{release.version}+{build.build}"
    return None


def r25_origin(release: TorchRelease, build: TorchBuild, origin: str) -> Clash | None:
    """R25: PyPI's wheels of torch are preferred to those of PyTorch's index; torch_origin pypi allows no others."""
    if build.origin == "pypi" or origin != "pypi":
        return None
    what = f"torch {release.version}+{build.build}"
    one = Fact(f"{what} is only in PyTorch's wheel index", "torch-release-md, pypi-meta")
    other = Fact("torch_origin is pypi", "the specification")
    because = f"{what} is not on PyPI, and torch_origin allows no other index"
    return Clash(component="torch", rule="R25", between=(one, other), because=because)


def r12_torch_compile(target: Target) -> Reasons:
    """R12: GPUs below compute capability 7.0 cannot use torch.compile."""
    old = next((gpu for gpu in target.models if cc(gpu.compute_capability) < (7, 0)), None)
    if old is None:
        return ()
    text = f"{is_a(old)}: torch.compile rejects GPUs below 7.0; use eager mode"
    return (Reason(component="torch", because=text, rule="R12", source="wheel-bytes"),)


def choose_torch(
    target: Target, driver: str, wanted: str, origin: str = "auto", own: str | None = None
) -> tuple[TorchChoice, Reasons] | Clash:
    """Return the newest torch whose build runs on every GPU and this driver. origin: as torch_origin in stack.yml.

    own: the Python that ``auto`` needs a wheel for, None for any.
    """
    requested = request(wanted)
    if requested.build == "cpu":
        return _cpu_torch(target, wanted)
    first: Clash | None = None
    newer: TorchRelease | None = None
    for release, build, archs in _candidates(target, wanted, origin):
        python = libraries.r16_python(target.os, release.pythons, release.glibc)
        if python is None:
            clash: Clash | None = libraries.glibc_clash("torch", f"torch {release.version}", release.glibc, target.os)
        else:
            clash = _torch_clash(target, driver, release, build, archs) or r25_origin(release, build, origin)
        if clash is None and requested.auto and own is not None and own not in release.pythons:
            newer = newer or release
            continue
        if clash is None and python is not None:
            choice, reasons = _torch_choice(target, release, build, python)
            elsewhere = _newer_elsewhere(target, driver, wanted, (origin, own), choice)
            return choice, (*reasons, *elsewhere, *_newer_python(target.os, own, newer))
        # A clash with the origin alone is more useful than that of a build which no GPU here can run.
        first = clash if first is None or (clash and clash.rule == "R25" != first.rule) else first
    if newer:
        return choose_torch(target, driver, newer.version, origin)
    return first or libraries.not_known("torch", wanted, "wheel-bytes, torch-build-scripts", target, _known())


def _newer_python(os: OperatingSystem, own: str | None, newer: TorchRelease | None) -> Reasons:
    if newer is None:
        return ()
    text = (
        f"torch {newer.version} is newer and has no wheel for Python {own} of {os.name}: for it, install another "
        "Python on the hosts, set gpucheck_python to its name, and state torch in stack.yml"
    )
    return (Reason(component="torch", because=text, rule="R16", source="pypi-meta"),)


def _candidates(target: Target, wanted: str, origin: str) -> Iterator[tuple[TorchRelease, TorchBuild, tuple[int, ...]]]:
    """Yield the builds to try, newest first; those of PyPI before all others unless the origin may be any."""
    if origin == "any":
        yield from _newest_first(target, wanted)
    else:
        yield from (row for row in _newest_first(target, wanted) if row[1].origin == "pypi")
        yield from (row for row in _newest_first(target, wanted) if row[1].origin != "pypi")


def _newest_first(target: Target, wanted: str) -> Iterator[tuple[TorchRelease, TorchBuild, tuple[int, ...]]]:
    requested = request(wanted)
    for release in reversed(tables.torch().releases):
        if requested.matches(release.version):
            yield from ((release, *build) for build in _builds(target, release, requested.build))


def _newer_elsewhere(
    target: Target, driver: str, wanted: str, limits: tuple[str, str | None], choice: TorchChoice
) -> Reasons:
    """R25: a newer build of PyTorch's index is reported but not chosen, as not every network reaches that index."""
    origin, own = limits
    newest = None if origin == "any" else choose_torch(target, driver, wanted, "any", own)
    if newest is None or isinstance(newest, Clash) or newest[0].version == choice.version:
        return ()
    torch = newest[0]
    text = (
        f"torch {torch.version}+{torch.build} is newer and only in PyTorch's wheel index; if the hosts reach it, set "
        "torch_origin: any in stack.yml"
    )
    return (Reason(component="torch", because=text, rule="R25", source="torch-release-md, pypi-meta"),)


def _builds(target: Target, release: TorchRelease, build: str) -> list[tuple[TorchBuild, tuple[int, ...]]]:
    """Return the builds of a release to try with their machine code, the plain wheel first."""
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
            clash = libraries.r3_ptx_needs_full_driver(
                build.cuda, driver, "torch", f"torch {release.version}+{build.build}"
            )
        if clash:
            return clash
    return libraries.r6_wheel_driver(build.cuda, driver, "torch", f"torch {release.version}+{build.build}")


def _torch_choice(target: Target, release: TorchRelease, build: TorchBuild, python: str) -> tuple[TorchChoice, Reasons]:
    inside = {"cuda": build.cuda, "cudnn": build.cudnn, "nccl": build.nccl}
    choice = TorchChoice(version=release.version, build=build.build, python=python, origin=build.origin, **inside)
    where = "on PyPI" if build.origin == "pypi" else f"in PyTorch's wheel index, sub-index {build.build},"
    confirmed = build.basis in ("bytes", "build-scripts")
    text = f"newest official build {where} with code for every GPU here (architecture list: {build.basis})"
    source = "wheel-bytes, torch-build-scripts"
    reasons = [Reason(component="torch", because=text, rule="R11", source=source, confirmed=confirmed)]
    if python != target.os.python:
        own = target.os.python
        text = f"needs an additional Python {python}: {target.os.name} has {own}, and there is no wheel for it"
        reasons.append(Reason(component="torch", because=text, rule="R16", source="pypi-meta"))
    return choice, (*reasons, *r12_torch_compile(target))


def _cpu_torch(target: Target, wanted: str) -> tuple[TorchChoice, Reasons] | Clash:
    requested = request(wanted)
    for release in reversed(tables.torch().releases):
        python = libraries.r16_python(target.os, release.pythons, release.glibc)
        if requested.matches(release.version) and python:
            text = "CPU build as requested: it uses no GPU and depends on none"
            choice = TorchChoice(version=release.version, build="cpu", python=python, origin="index")
            return choice, (Reason(component="torch", because=text, rule="R16", source="pypi-meta"),)
    return libraries.not_known("torch", wanted, "pypi-meta", target, _known())


class Torch(Component):
    """The wheel with its build, such as ``2.14.1+cu126``."""

    name = title = "torch"
    place, turn = 90, 10
    default = "auto"

    def choose(self, choice: Choice) -> Any:
        spec = choice.spec
        own = libraries.r16_environment(choice.target.os)
        found = choose_torch(choice.target, choice.driver.version, spec.torch, spec.torch_origin, own)
        return choice.settle(found, spec.torch)

    def value(self, stack: StackSet) -> str | None:
        return f"{stack.torch.version}+{stack.torch.build}" if stack.torch else None

    def label(self, stack: StackSet) -> str:
        torch = stack.torch
        return f"{torch.version}+{torch.build} on Python {torch.python}" if torch else "none"


class Reference(NamedTuple):
    """The torch whose libraries determine the host's. own: it is the torch of the set."""

    torch: TorchChoice
    own: bool

    @property
    def words(self) -> str:
        """Return where the version of a library comes from, as text."""
        name = f"torch {self.torch.version}+{self.torch.build}"
        return f"the version that {name} includes" if self.own else f"that of {name}, the newest build for these GPUs"


def reference_torch(choice: Choice, cuda_major: int) -> Reference | None:
    """Return the torch whose libraries determine the host's: a requested one, if it is built for this CUDA major.

    Otherwise, and if it would be chosen anyway, the newest official build for these GPUs in any index: wheels include
    their libraries, and the host's are for users who compile.
    """
    torch: TorchChoice | None = choice.chosen["torch"]
    target, driver = choice.target, choice.driver.version
    usual = choose_torch(target, driver, "auto", choice.spec.torch_origin, libraries.r16_environment(target.os))
    other = isinstance(usual, Clash) or usual[0] != torch
    if other and torch is not None and torch.cuda and major(torch.cuda) == cuda_major:
        return Reference(torch, own=True)
    found = choose_torch(target, driver, "auto", "any")
    return None if isinstance(found, Clash) else Reference(found[0], own=found[0] == torch)


def _known() -> tuple[str, ...]:
    return tuple(release.version for release in tables.torch().releases)


COMPONENT = Torch()
