"""Every version of a part that the tables know, so that the resolver can be asked about each of them by name."""

from gpucheck.knowledge import tables
from gpucheck.knowledge.options import options
from gpucheck.knowledge.packages import packages
from gpucheck.stack.rules.libraries import KNOWN_BAD_CUDA
from gpucheck.stack.types import StackSet
from gpucheck.stack.versions import parse, request

# In the order of the layers: a later one is chosen for the ones before it.
PARTS = ("driver", "torch", "tensorflow", "cuda", "cudnn", "nccl", "container_toolkit", "dcgm")


def versions(part: str) -> tuple[str, ...]:
    """What a wish can say to name each known version exactly, oldest first. torch: versions without their builds."""
    if part == "driver":
        return tuple(branch.last for branch in tables.drivers().branches if branch.last)
    if part == "torch":
        return tuple(release.version for release in tables.torch().releases)
    if part == "tensorflow":
        return tuple(r.version for r in tables.tensorflow().releases if not parse(r.version).is_prerelease)
    if part == "cuda":
        return tuple(toolkit.version for toolkit in tables.cuda().toolkits)
    if part == "cudnn":
        return tuple(release.version for release in tables.cudnn().releases)
    if part == "nccl":
        pairs = sorted(packages().nccl.builds, key=lambda pair: (parse(pair.version), parse(pair.cuda)))
        return tuple(f"{pair.version}+cuda{pair.cuda}" for pair in pairs)
    if part == "dcgm":
        return tuple(row.version for row in options().dcgm.versions)
    return packages().container_toolkit.versions


def torch_builds() -> tuple[str, ...]:
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


def newest_first(part: str, wanted: str) -> tuple[str, ...]:
    """The versions that a wish allows, newest first. Toolkits with known wrong results are left out unless named."""
    asked = request(wanted)
    if asked.none:
        return ()
    if part == "torch":
        if asked.build:
            return (wanted,)
        return tuple(text for text in torch_builds() if asked.matches(plain(text)))
    if part == "driver":
        return (wanted,) if len(asked.prefix) > 1 else tuple(v for v in reversed(versions(part)) if asked.matches(v))
    found = tuple(text for text in reversed(versions(part)) if asked.matches(plain(text)))
    if part == "cuda" and len(asked.prefix) < 3:
        found = tuple(version for version in found if version not in KNOWN_BAD_CUDA)
    if part == "nccl" and asked.build:
        found = tuple(text for text in found if text.endswith(f"+{asked.build}"))
    return found


def plain(text: str) -> str:
    """The version without its build: ``2.29.3+cuda12.9`` -> ``2.29.3``."""
    return text.partition("+")[0]


def chosen(stack: StackSet, part: str) -> str | None:
    """What a set holds of a part, as a wish would name it; None = left out."""
    if part == "driver":
        return stack.driver.version
    if part == "kernel_module":
        return stack.driver.kernel_module
    if part == "torch":
        return f"{stack.torch.version}+{stack.torch.build}" if stack.torch else None
    if part == "tensorflow":
        return stack.tensorflow.version if stack.tensorflow else None
    # An option that nobody asked for is not there at all.
    value: str | None = getattr(stack, part) or None
    return value
