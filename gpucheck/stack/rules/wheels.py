"""Rules about the framework wheels: they bring their own CUDA, so only the driver and the GPU bind them (R6)."""

from gpucheck.knowledge import GpuModel, tables
from gpucheck.knowledge.tables import OperatingSystem, TensorflowRelease, TorchBuild, TorchRelease
from gpucheck.stack.rules.driver import is_a, r1_driver_floor
from gpucheck.stack.rules.libraries import r5_runs
from gpucheck.stack.types import Clash, Fact, Reason, Target, TensorflowChoice, TorchChoice
from gpucheck.stack.versions import cc, major, minor, parse, request, sm

# Both frameworks have wheels for it, and it is supported until late 2028.
ADDED_PYTHON = "3.12"
OLD_CUDNN = "9.10.2.21"


def r3_ptx_needs_full_driver(cuda: str, driver: str, component: str, what: str) -> Clash | None:
    """R3: a GPU that finds only PTX in a program needs a driver as new as the toolkit that built it."""
    full = next((t.driver_full for t in reversed(tables.cuda().toolkits) if minor(t.version) == minor(cuda)), None)
    if full is not None and parse(driver) >= parse(full):
        return None
    return Clash(
        component=component,
        rule="R3",
        between=(
            Fact(f"{what} holds only PTX of CUDA {cuda} for this GPU, to be translated by the driver", "wheel-bytes"),
            Fact(
                f"PTX translation needs driver {full or '(not known)'}, the driver is {driver}", "cuda-compat, cuda-rn"
            ),
        ),
        because=f"driver {driver} cannot translate the PTX in {what}",
    )


def r6_wheel_driver(cuda: str, driver: str, component: str, what: str) -> Clash | None:
    """R6: a wheel takes only the driver from the host, so R1 holds with the wheel's own CUDA major."""
    return r1_driver_floor(major(cuda), driver, component, what)


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


def r16_python(os: OperatingSystem, pythons: tuple[str, ...], glibc: str) -> str | None:
    """R16: the Python to use, None where glibc is too old. The system's own if there is a wheel, else an added one."""
    if parse(os.glibc) < parse(glibc):
        return None
    if os.python in pythons:
        return os.python
    if ADDED_PYTHON in pythons:
        return ADDED_PYTHON
    return max((p for p in pythons if not p.endswith("t")), key=parse)


def r16_unconfirmed(os: OperatingSystem) -> tuple[Reason, ...]:
    """R16: what of a system decides about wheels and was not confirmed."""
    values = {"python": f"its default Python is {os.python}", "glibc": f"its glibc is {os.glibc}"}
    texts = [text for field, text in values.items() if field in os.unconfirmed]
    if not texts:
        return ()
    text = f"{os.name}: that {' and that '.join(texts)} was not confirmed"
    return (Reason(component="os", because=text, rule="R16", source="env-dumps", confirmed=False),)


def _glibc_clash(component: str, what: str, glibc: str, os: OperatingSystem) -> Clash:
    return Clash(
        component=component,
        rule="R16",
        between=(
            Fact(f"the wheels of {what} need glibc {glibc}", "wheel-bytes"),
            Fact(f"{os.name} has glibc {os.glibc}", "env-dumps"),
        ),
        because=f"{what} does not install on {os.name}",
    )


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
                clash: Clash | None = _glibc_clash("torch", f"torch {release.version}", release.glibc, target.os)
            else:
                clash = _torch_clash(target, driver, release, build, archs)
            if clash is None and python is not None:
                return _torch_choice(target, release, build, python)
            first = first or clash
    return first or _not_known("torch", wanted, "wheel-bytes, torch-build-scripts", target)


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
    return _not_known("torch", wanted, "pypi-meta", target)


def _not_known(component: str, wanted: str, source: str, target: Target) -> Clash:
    rows = tables.torch().releases if component == "torch" else tables.tensorflow().releases
    return Clash(
        component=component,
        rule="R20" if target.arch == "sbsa" else "R11",
        between=(
            Fact(f"{component} {wanted} is asked for", "the wish"),
            Fact(f"the tables hold no confirmed GPU build of it for {target.arch}", source),
        ),
        because=f"no {component} {wanted} with GPU support for {target.arch} is known",
        unknown=not any(request(wanted).matches(row.version) for row in rows),
    )


def _tensorflow_clash(target: Target, driver: str, release: TensorflowRelease) -> Clash | None:
    what = f"TensorFlow {release.version}"
    archs = tuple(int(name.partition("_")[2]) for name in release.archs or ())
    ptx = max((int(name.partition("_")[2]) for name in release.archs or () if name.startswith("compute_")), default=0)
    for gpu in target.models:
        if r5_runs(gpu.compute_capability, archs):
            continue
        code = " ".join(release.archs or ())
        # Blackwell would have to live from PTX, and official wheels were seen to fail at it (tf-issues).
        if ptx and sm(ptx) < cc(gpu.compute_capability) and cc(gpu.compute_capability) < (10, 0):
            clash = r3_ptx_needs_full_driver(release.cuda or "", driver, "tensorflow", what)
            if clash is None:
                continue
            return clash
        return Clash(
            component="tensorflow",
            rule="R11",
            between=(Fact(is_a(gpu), "cuda-gpus"), Fact(f"{what} holds {code}", "wheel-bytes, tf-issues")),
            because=f"no official wheel of {what} works on {gpu.name}; a vendor container or a source build may",
        )
    return r6_wheel_driver(release.cuda or "12", driver, "tensorflow", what)


def choose_tensorflow(target: Target, driver: str, wanted: str) -> tuple[TensorflowChoice, tuple[Reason, ...]] | Clash:
    """The newest TensorFlow for every GPU. R20: none with GPU support exists for aarch64."""
    asked = request(wanted)
    if target.arch == "sbsa":
        return _not_known("tensorflow", wanted, "wheel-bytes", target)
    first: Clash | None = None
    for release in reversed(tables.tensorflow().releases):
        if release.archs is None or not release.and_cuda_extra or not asked.matches(release.version):
            continue
        clash = _tensorflow_clash(target, driver, release)
        python = r16_python(target.os, release.pythons, release.glibc)
        if clash is None and python is None:
            clash = _glibc_clash("tensorflow", f"TensorFlow {release.version}", release.glibc, target.os)
        if clash is None and python is not None:
            return _tensorflow_choice(target, release, python)
        first = first or clash
    return first or _not_known("tensorflow", wanted, "wheel-bytes", target)


def _tensorflow_choice(
    target: Target, release: TensorflowRelease, python: str
) -> tuple[TensorflowChoice, tuple[Reason, ...]]:
    reasons = [
        Reason(
            component="tensorflow",
            because="newest release with code for every GPU here, in an environment of its own",
            rule="R11",
            source="wheel-bytes",
        )
    ]
    old = next((gpu for gpu in target.models if cc(gpu.compute_capability) < (7, 5)), None)
    constraints: tuple[str, ...] = ()
    if old and not (release.cudnn or "").startswith("=="):
        constraints = (f"nvidia-cudnn-cu12=={OLD_CUDNN}",)
        text = f"{is_a(old)}: without the pin pip takes a newer cuDNN, which has no code for it"
        reasons.append(Reason(component="tensorflow", because=text, rule="R7", source="pip-resolve, wheel-bytes"))
    if python != target.os.python:
        text = f"needs an added Python {python}: there is no wheel for {target.os.python}"
        reasons.append(Reason(component="tensorflow", because=text, rule="R16", source="pypi-meta"))
    return TensorflowChoice(version=release.version, python=python, constraints=constraints), tuple(reasons)


def r19_same_environment(torch: TorchChoice | None, tensorflow: TensorflowChoice | None) -> tuple[Reason, ...]:
    """R19: whether torch and GPU TensorFlow can share one environment. The default is two."""
    if torch is None or tensorflow is None or torch.cuda is None:
        return ()
    row = next(
        (
            r
            for r in tables.tensorflow().same_environment
            if (r.torch, r.tensorflow) == (torch.version, tensorflow.version)
        ),
        None,
    )
    if row and row.result == "works":
        text = f"one environment for both was resolved ({row.because})"
    elif row:
        text = f"two environments: {row.because}"
    else:
        text = "two environments: this pair was not resolved together, and cu12 and cu13 wheels overwrite each other"
    return (Reason(component="tensorflow", because=text, rule="R19", source="pip-resolve", confirmed=row is not None),)
