"""images/versions.yml: one row an image variant, and what tags and labels follow from it."""

from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from gpucheck.foreign.documents import Loader
from gpucheck.stack.spec import did_you_mean

SCHEMA = "gpucheck.images/1"
FILE = "images/versions.yml"
LABEL = "gpucheck.images"
# What the redistributed parts are under; NVIDIA's libraries come with the CUDA wheels.
LICENSES = {"torch": "Apache-2.0 AND BSD-3-Clause", "tensorflow": "Apache-2.0"}
NVIDIA_LICENSE = "LicenseRef-NVIDIA-CUDA-EULA"
# The name of a base that --base gave: such an image is not the one that the versions file describes.
CUSTOM = "custom"


class VersionsError(ValueError):
    """images/versions.yml cannot be used. The message says where and what to do."""


class Base(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A base image. image: by digest, None for the one made from Debian's archive. os: an id of the stack's tables."""

    name: str
    python: str
    image: str | None = None
    os: str | None = None

    @property
    def digest(self) -> str | None:
        """The digest in the reference."""
        return self.image.partition("@")[2] or None if self.image else None


class Wish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What people ask of a variant. gpus: the GPUs it must serve, none for a CPU variant.

    version, torch_origin: as in stack.yml.
    """

    gpus: tuple[str, ...] = ()
    version: str = "auto"
    torch_origin: Literal["pypi", "any"] | None = None


class Filled(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the resolver and the lock answer.

    index: pypi, or the sub-index of PyTorch's own wheel index. built_for: the CUDA that the framework was built with.
    cuda (major.minor), cudnn, nccl: what the image carries. code: machine code inside, ``sm_60`` or ``compute_90``.
    driver_floor: the oldest driver that runs it. platforms: where official wheels of exactly this build exist.
    """

    version: str
    build: str
    index: str
    python: str
    platforms: tuple[str, ...]
    locked: bool
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
    wish: Wish
    size_budget_mb: int
    compiler: tuple[str, ...] = ()
    filled: Filled

    @property
    def licenses(self) -> str:
        """SPDX expression of what the image holds beside the base."""
        return f"{LICENSES[self.framework]}{f' AND {NVIDIA_LICENSE}' if self.filled.cuda else ''}"


class Versions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"schema_": "schema"}):
    """The whole file. base: what every variant is built on; stand_in: on what, where no registry answers."""

    schema_: Literal["gpucheck.images/1"]
    base: Base
    stand_in: Base
    variants: dict[str, Variant]

    def variant(self, name: str) -> Variant:
        """One row. Raises LookupError with what was probably meant."""
        if name not in self.variants:
            raise LookupError(f"there is no image variant {name!r}. {did_you_mean(name, tuple(self.variants))}")
        return self.variants[name]


def read_versions(root: Path) -> Versions:
    """The versions file of a checkout. Raises VersionsError with the file and the key."""
    path = root / FILE
    try:
        return msgspec.convert(yaml.load(path.read_text(encoding="utf-8"), Loader=Loader), Versions)  # noqa: S506 - CSafeLoader
    except OSError as error:
        raise VersionsError(f"{path}: cannot be read: {error.strerror}. Run this from a checkout.") from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise VersionsError(f"{path}: {error}. Correct it, then: gpucheck image versions --update") from error


def version_text(variant: Variant) -> str:
    """Framework version with its build: ``2.14.1-cu126``; TensorFlow names its CUDA by the wheels that it carries."""
    filled = variant.filled
    build = filled.build if filled.build != "cuda" else f"cu{(filled.cuda or '').replace('.', '')}"
    return f"{filled.version}-{build}"


def tag(variant: Variant, base: Base, stand_in: bool) -> str:
    """The image's name: ``gpucheck/torch:2.15.0-cu132-py312``. Any other base is in the tag, ``latest`` never."""
    text = f"{version_text(variant)}-py{base.python.replace('.', '')}"
    return f"gpucheck/{variant.framework}:{text}{f'-{base.name}' if stand_in or base.name == CUSTOM else ''}"


def labels(name: str, variant: Variant, base: Base, *, stand_in: bool, build: dict[str, str]) -> dict[str, str]:
    """OCI labels and ours. build: ``gpucheck``, and of revision, created, source and fingerprint what is known."""
    filled = variant.filled
    oci: dict[str, str | None] = {
        "title": f"gpucheck {name}",
        "description": f"{variant.framework} {version_text(variant)} with gpucheck, which proves it: gpucheck image",
        "version": f"{version_text(variant)}+gpucheck.{build['gpucheck']}",
        "revision": build.get("revision"),
        "created": build.get("created"),
        "source": build.get("source"),
        "licenses": variant.licenses,
        "base.name": (base.image or base.name).partition("@")[0],
        "base.digest": base.digest,
    }
    ours: dict[str, str | None] = {
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
    found |= {f"{LABEL}{key}": value for key, value in ours.items()}
    return {key: value for key, value in found.items() if value is not None}


def promise(name: str, variant: Variant, base: Base, *, stand_in: bool) -> dict[str, Any]:
    """image.json: what the image says of itself inside, for `gpucheck image` to compare with what is there."""
    return {
        "schema": "gpucheck.image-promise/1",
        "variant": name,
        "framework": variant.framework,
        "stand_in_base": stand_in,
        "base": base.image or base.name,
        **msgspec.to_builtins(variant.filled),
        "python": base.python,
    }
