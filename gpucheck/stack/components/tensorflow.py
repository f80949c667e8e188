"""TensorFlow: its wheels include CUDA, like those of torch; it gets a separate environment."""

from typing import Any

from gpucheck.knowledge import tables
from gpucheck.knowledge.tables import TensorflowRelease
from gpucheck.stack.components.base import Choice, Component
from gpucheck.stack.rules import libraries
from gpucheck.stack.rules.driver import is_a
from gpucheck.stack.types import Clash, Fact, Reason, Reasons, StackSet, Target, TensorflowChoice, TorchChoice
from gpucheck.stack.versions import cc, request, sm

OLD_CUDNN = "9.10.2.21"


def _tensorflow_clash(target: Target, driver: str, release: TensorflowRelease) -> Clash | None:
    what = f"TensorFlow {release.version}"
    archs = tuple(int(name.partition("_")[2]) for name in release.archs or ())
    ptx = max((int(name.partition("_")[2]) for name in release.archs or () if name.startswith("compute_")), default=0)
    for gpu in target.models:
        if libraries.r5_runs(gpu.compute_capability, archs):
            continue
        code = " ".join(release.archs or ())
        # Blackwell would depend on PTX, which fails with official wheels (tf-issues).
        if ptx and sm(ptx) < cc(gpu.compute_capability) and cc(gpu.compute_capability) < (10, 0):
            clash = libraries.r3_ptx_needs_full_driver(release.cuda or "", driver, "tensorflow", what)
            if clash:
                return clash
            continue
        between = (Fact(is_a(gpu), "cuda-gpus"), Fact(f"{what} has {code}", "wheel-bytes, tf-issues"))
        because = f"no official wheel of {what} works on {gpu.name}; a vendor container or a source build may work"
        return Clash(component="tensorflow", rule="R11", between=between, because=because)
    return libraries.r6_wheel_driver(release.cuda or "12", driver, "tensorflow", what)


def choose_tensorflow(target: Target, driver: str, wanted: str) -> tuple[TensorflowChoice, Reasons] | Clash:
    """Return the newest TensorFlow for every GPU. R20: no TensorFlow wheel for aarch64 has GPU support."""
    requested = request(wanted)
    if target.arch == "sbsa":
        return libraries.not_known("tensorflow", wanted, "wheel-bytes", target, _known())
    first: Clash | None = None
    for release in reversed(tables.tensorflow().releases):
        if release.archs is None or not release.and_cuda_extra or not requested.matches(release.version):
            continue
        clash = _tensorflow_clash(target, driver, release)
        python = libraries.r16_python(target.os, release.pythons, release.glibc)
        if clash is None and python is None:
            clash = libraries.glibc_clash("tensorflow", f"TensorFlow {release.version}", release.glibc, target.os)
        if clash is None and python is not None:
            return _tensorflow_choice(target, release, python)
        first = first or clash
    return first or libraries.not_known("tensorflow", wanted, "wheel-bytes", target, _known())


def _tensorflow_choice(target: Target, release: TensorflowRelease, python: str) -> tuple[TensorflowChoice, Reasons]:
    text = "newest release with code for every GPU here, in a separate environment"
    reasons = [Reason(component="tensorflow", because=text, rule="R11", source="wheel-bytes")]
    old = next((gpu for gpu in target.models if cc(gpu.compute_capability) < (7, 5)), None)
    constraints: tuple[str, ...] = ()
    if old and not (release.cudnn or "").startswith("=="):
        constraints = (f"nvidia-cudnn-cu12=={OLD_CUDNN}",)
        text = f"{is_a(old)}: without the pin, pip installs a newer cuDNN, which has no code for it"
        reasons.append(Reason(component="tensorflow", because=text, rule="R7", source="pip-resolve, wheel-bytes"))
    if python != target.os.python:
        text = f"needs an additional Python {python}: there is no wheel for {target.os.python}"
        reasons.append(Reason(component="tensorflow", because=text, rule="R16", source="pypi-meta"))
    return TensorflowChoice(version=release.version, python=python, constraints=constraints), tuple(reasons)


def r19_same_environment(torch: TorchChoice | None, tensorflow: TensorflowChoice | None) -> Reasons:
    """R19: torch and GPU TensorFlow share one environment only if that pair was resolved; the default is two."""
    if torch is None or tensorflow is None or torch.cuda is None:
        return ()
    pairs = {(row.torch, row.tensorflow): row for row in tables.tensorflow().same_environment}
    row = pairs.get((torch.version, tensorflow.version))
    if row and row.result == "works":
        text = f"one environment for both was resolved ({row.because})"
    elif row:
        text = f"two environments: {row.because}"
    else:
        text = "two environments: this pair was not resolved together, and cu12 and cu13 wheels overwrite each other"
    return (Reason(component="tensorflow", because=text, rule="R19", source="pip-resolve", confirmed=row is not None),)


class Tensorflow(Component):
    """The release, and the wheels to pin with it for these GPUs."""

    name = "tensorflow"
    title = "TensorFlow"
    place, turn = 100, 20
    default = "auto"

    def choose(self, choice: Choice) -> Any:
        spec, target, torch = choice.spec, choice.target, choice.chosen["torch"]
        found = choice.settle(choose_tensorflow(target, choice.driver.version, spec.tensorflow), spec.tensorflow)
        if not isinstance(found, Clash):
            choice.reasons += r19_same_environment(torch, found)
            choice.reasons += libraries.r16_unconfirmed(target.os) if torch or found else ()
        return found

    def value(self, stack: StackSet) -> str | None:
        return stack.tensorflow.version if stack.tensorflow else None

    def label(self, stack: StackSet) -> str:
        found = stack.tensorflow
        if found is None:
            return "none"
        pins = f" with {', '.join(found.constraints)}" if found.constraints else ""
        return f"{found.version} on Python {found.python}{pins}"


def _known() -> tuple[str, ...]:
    return tuple(release.version for release in tables.tensorflow().releases)


COMPONENT = Tensorflow()
