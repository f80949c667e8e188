"""images/versions.yml: one row per image variant, with its tags and labels."""

import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from gpucheck.foreign.documents import DocumentProblem, parse
from gpucheck.foreign.written import did_you_mean
from gpucheck.knowledge import code_runs
from gpucheck.knowledge.gpus import gpu_table
from gpucheck.lab.system import LabError

SCHEMA = "gpucheck.images/1"
FILE, LOCKS, PAGE = "images/versions.yml", "images/locks", "docs/images.md"
LABEL = "gpucheck.images"
# Licenses of the redistributed components; the CUDA wheels include NVIDIA's libraries.
LICENSES = {"torch": "Apache-2.0 AND BSD-3-Clause", "tensorflow": "Apache-2.0"}
NVIDIA_LICENSE = "LicenseRef-NVIDIA-CUDA-EULA"
# The name of a base given with --base: such an image differs from the versions file.
CUSTOM = "custom"


class VersionsError(ValueError):
    """images/versions.yml cannot be used. The message states where and what to do."""


class Base(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A base image. image: by digest, None for the one built from Debian's archive. os: an id of the stack's tables."""

    name: str
    python: str
    image: str | None = None
    os: str | None = None

    @property
    def digest(self) -> str | None:
        return self.image.partition("@")[2] or None if self.image else None


class VariantSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A variant's specification. gpus: those it must support, empty for a CPU variant. version: as in stack.yml."""

    gpus: tuple[str, ...] = ()
    version: str = "auto"


class Filled(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values from the resolver and the lock.

    index: pypi, or the sub-index of PyTorch's wheel index. built_for: the CUDA that the framework was built with.
    cuda (major.minor), cudnn, nccl: versions in the image. code: included machine code, ``sm_60`` or ``compute_90``.
    driver_floor: the minimum driver. platforms: those with official wheels of exactly this build.
    """

    version: str
    build: str
    index: str
    python: str
    platforms: tuple[str, ...]
    built_for: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    driver_floor: str | None = None
    code: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()


class Variant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One image. compiler: packages of the base for torch.compile. size_budget_mb: 10**6 bytes, unpacked."""

    framework: Literal["torch", "tensorflow"]
    spec: VariantSpec
    size_budget_mb: int
    compiler: tuple[str, ...] = ()
    filled: Filled

    @property
    def licenses(self) -> str:
        """Return the SPDX expression of the image's contents, without the base."""
        return f"{LICENSES[self.framework]}{f' AND {NVIDIA_LICENSE}' if self.filled.cuda else ''}"


class Versions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"schema_": "schema"}):
    """The file. base: the base of every variant; ``stand_in``: its substitute if no registry responds."""

    schema_: Literal["gpucheck.images/1"]
    base: Base
    stand_in: Base
    variants: dict[str, Variant]

    def variant(self, name: str) -> Variant:
        """Return one row. Raises LookupError with the closest name."""
        if name not in self.variants:
            raise LookupError(f"there is no image variant {name!r}. {did_you_mean(name, tuple(self.variants))}")
        return self.variants[name]


def lock_path(root: Path, name: str) -> Path:
    return root / LOCKS / f"{name}.txt"


def read_versions(root: Path) -> Versions:
    """Return the versions file of a checkout. Raises VersionsError with the file and the key."""
    path = root / FILE
    try:
        return parse(path.read_text(encoding="utf-8"), str(path), Versions, trusted=True)
    except OSError as error:
        raise VersionsError(f"{path}: cannot be read: {error.strerror}. Run this from a checkout.") from error
    except DocumentProblem as error:
        raise VersionsError(f"{error}. Correct it, then: python -m release.image_versions") from error


def version_text(variant: Variant) -> str:
    """Return the framework version with its build: ``2.14.1-cu126``; for TensorFlow, the CUDA of its wheels."""
    filled = variant.filled
    build = filled.build if filled.build != "cuda" else f"cu{(filled.cuda or '').replace('.', '')}"
    return f"{filled.version}-{build}"


def tag(variant: Variant, base: Base, stand_in: bool) -> str:
    """Return the image's name: ``gpucheck/torch:2.15.0-cu132-py312``; the tag names any other base."""
    text = f"{version_text(variant)}-py{base.python.replace('.', '')}"
    return f"gpucheck/{variant.framework}:{text}{f'-{base.name}' if stand_in or base.name == CUSTOM else ''}"


def labels(name: str, variant: Variant, base: Base, *, stand_in: bool, build: dict[str, str]) -> dict[str, str]:
    """Return OCI labels and those of gpucheck.

    build: ``gpucheck``, and revision, created, source and fingerprint if known.
    """
    filled = variant.filled
    oci: dict[str, str | None] = {
        "title": f"gpucheck {name}",
        "description": f"{variant.framework} {version_text(variant)} with gpucheck; verify it: gpucheck image",
        "version": f"{version_text(variant)}+gpucheck.{build['gpucheck']}",
        "licenses": variant.licenses,
        "base.name": (base.image or base.name).partition("@")[0],
        "base.digest": base.digest,
        **{key: build.get(key) for key in ("revision", "created", "source")},
    }
    own: dict[str, str | None] = {
        "": name,
        ".framework": variant.framework,
        ".framework-version": filled.version,
        ".python": base.python,
        ".driver-floor": filled.driver_floor,
        ".stand-in-base": "true" if stand_in else None,
        **{f".{key}": getattr(filled, key) for key in ("build", "cuda", "cudnn", "nccl")},
        **{f".{key}": build.get(key) or None for key in ("fingerprint", "updates")},
    }
    found = {f"org.opencontainers.image.{key}": value for key, value in oci.items()}
    found |= {f"{LABEL}{key}": value for key, value in own.items()}
    return {key: value for key, value in found.items() if value is not None}


def image_manifest(name: str, variant: Variant, base: Base, *, stand_in: bool) -> dict[str, Any]:
    """Return image.json: the declared versions, which `gpucheck image` compares with the installed ones."""
    return {
        "schema": "gpucheck.image-promise/1",
        "variant": name,
        "framework": variant.framework,
        "stand_in_base": stand_in,
        "base": base.image or base.name,
        **msgspec.to_builtins(variant.filled),
        "python": base.python,
    }


if TYPE_CHECKING:
    from docker import DockerClient

# Docker's name of an architecture -> the kernel's, as wheels are tagged.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def require_platform(client: "DockerClient", versions: Versions, name: str) -> None:
    """Raise LabError if the engine's architecture has no wheels of this build, or is not that of this host."""
    here = next((arch for arch, machine in MACHINES.items() if machine == platform.machine()), platform.machine())
    engine = str(client.version().get("Arch") or here)
    platforms = [one.removeprefix("linux/") for one in versions.variant(name).filled.platforms]
    if engine not in platforms:
        raise LabError(
            f"{name} cannot be built for linux/{engine}: no official wheels of exactly this build are known\n"
            f"do: build it on {' or '.join(platforms)}, or another variant (gpucheck image list)"
        )
    if engine != here:
        raise LabError(
            f"the Docker engine is linux/{engine} and this host linux/{here}, whose pip downloads its own wheels\n"
            f"do: build on a host that is {engine}, or with the context: gpucheck image context {name}"
        )


# Triton generates no code for GPUs below this one, whatever the build (rule R12 of the stack).
COMPILED = 70


def table(versions: Versions) -> str:
    """Return one Markdown row per variant."""
    head = ["variant", "framework", "CUDA", "cuDNN", "NCCL", "driver", "serves", "wheels", "platforms", "budget", "tag"]
    rows = []
    for name, row in versions.variants.items():
        filled = row.filled
        built = f" (built for {filled.built_for})" if filled.cuda and filled.built_for != filled.cuda else ""
        rows.append(
            [
                name,
                f"{row.framework} {filled.version}",
                f"{filled.cuda}{built}" if filled.cuda else "none",
                filled.cudnn or "none",
                filled.nccl or "none",
                f"{filled.driver_floor} or newer" if filled.driver_floor else "none needed",
                served(filled.code),
                "PyPI" if filled.index == "pypi" else f"PyTorch's `{filled.index}`",
                ", ".join(platform.removeprefix("linux/") for platform in filled.platforms),
                f"{row.size_budget_mb / 1000:.1f} GB",
                f"`{tag(row, versions.base, stand_in=False)}`",
            ]
        )
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def purpose(framework: str, code: tuple[str, ...], driver_floor: str | None) -> str:
    """Return the purpose of an image as one line: GPU generations, driver, and limits."""
    if not code:
        return "for hosts without a GPU"
    old = framework == "torch" and any(int(name.partition("_")[2]) < COMPILED for name in code)
    limit = f"; torch.compile from compute capability {COMPILED / 10} on" if old else ""
    return f"for {served(code)} with driver {driver_floor} or newer{limit}"


def served(code: tuple[str, ...]) -> str:
    """Return the GPU generations that a build has machine code for, oldest first."""
    archs = tuple(int(name.partition("_")[2]) for name in code)
    found = sorted(
        {
            (gpu.compute_capability, gpu.architecture)
            for gpu in gpu_table().gpus
            if code_runs(gpu.compute_capability, archs)
        }
    )
    names = dict.fromkeys(name for _, name in sorted(found, key=lambda row: tuple(map(int, row[0].split(".")))))
    return ", ".join(names) or "no GPU"
