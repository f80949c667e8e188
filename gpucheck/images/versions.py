"""images/versions.yml: one row per image variant, with its tags and labels."""

from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from gpucheck.foreign.documents import Loader
from gpucheck.knowledge.strict import did_you_mean

SCHEMA = "gpucheck.images/1"
FILE = "images/versions.yml"
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


def read_versions(root: Path) -> Versions:
    """Return the versions file of a checkout. Raises VersionsError with the file and the key."""
    path = root / FILE
    try:
        return msgspec.convert(yaml.load(path.read_text(encoding="utf-8"), Loader=Loader), Versions)  # noqa: S506 - CSafeLoader
    except OSError as error:
        raise VersionsError(f"{path}: cannot be read: {error.strerror}. Run this from a checkout.") from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise VersionsError(f"{path}: {error}. Correct it, then: gpucheck image versions --update") from error


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
        "revision": build.get("revision"),
        "created": build.get("created"),
        "source": build.get("source"),
        "licenses": variant.licenses,
        "base.name": (base.image or base.name).partition("@")[0],
        "base.digest": base.digest,
    }
    own: dict[str, str | None] = {
        "": name,
        ".framework": variant.framework,
        ".framework-version": filled.version,
        ".build": filled.build,
        ".python": base.python,
        ".cuda": filled.cuda,
        ".cudnn": filled.cudnn,
        ".nccl": filled.nccl,
        ".driver-floor": filled.driver_floor,
        ".stand-in-base": "true" if stand_in else None,
        ".fingerprint": build.get("fingerprint"),
        ".updates": build.get("updates") or None,
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
