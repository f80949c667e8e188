"""stack.yml, the stack specification. Every value may be ``auto``; errors name the file, the line and the key."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import msgspec

from gpucheck.foreign import read_text
from gpucheck.foreign.documents import DocumentProblem
from gpucheck.foreign.written import Hooks, Misplaced, Written, did_you_mean, must_be_key
from gpucheck.stack.components import COMPONENTS, VERSIONED
from gpucheck.stack.components.base import MANAGED
from gpucheck.stack.settings import SETTING_BLOCKS, SETTINGS, Imex, Mok, Tuning, instead

SCHEMA = "gpucheck.spec/1"
MOST_BYTES = 1 << 20


class SpecError(Exception):
    """stack.yml or --want is invalid. The message states where, and what to do."""


# Repositories by their names in plans; epel is the source of DKMS. A mirror under another name would not be used.
EPEL, NONE = "epel", "none"
REPOSITORIES = ("nvidia-cuda", "nvidia-container-toolkit", EPEL)
CUDA_REPOSITORIES = tuple(f"cuda-rhel{major}-{arch}" for major in (8, 9, 10) for arch in ("x86_64", "sbsa"))
# Of a key file in armor, as NVIDIA's images pin it; see knowledge.packages.Key.
DIGEST = "sha256:"
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/[^\s{}]+")
_ONE = f"(?:[0-9A-Fa-f]{{40}}|[0-9A-Fa-f]{{64}}|{DIGEST}[0-9A-Fa-f]{{64}})"
FINGERPRINTS = re.compile(f"{_ONE}(?:,{_ONE})*")


class Repository(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Your own mirror. url and key_url may hold ``{distro}`` (rhel9) and ``{arch}`` (x86_64 or sbsa).

    key_fingerprint: of the signing key; several, separated by commas, if the key file holds several keys. sha256: with
    the digest of the file pins all of its keys.
    signed: the signed contents of an rpm repository: packages, metadata or both.
    The url of epel may be ``none``: the hosts' own sources have DKMS.
    """

    url: str | None = None
    key_url: str | None = None
    key_fingerprint: str | None = None
    signed: Literal["packages", "metadata", "both"] | None = None


class SpecFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the specification; see the comments in stack.yml at the root of the project.

    driver: a branch (580), a version (580.178.04), one with its package revision (580.95.05-0ubuntu1), or keep: the
    driver of the hosts, unmanaged.
    kernel_lock: hold the installed kernel packages, or leave them unmanaged.
    source: NVIDIA's repositories (same as auto), Debian's archive for Debian hosts, or Ubuntu's for the driver alone.
    container_engines: auto = configure Docker and kubelet's containerd for the NVIDIA runtime on hosts with
    the container toolkit.
    driver_extra: components missing from the compute-only packages, by their names in options.yml, sorted.
    torch_origin: allowed indexes of torch's wheel. auto: PyPI first, then PyTorch's index; pypi: PyPI alone; any:
    the newest of both.
    dcgm: optional, none by default. imex: the service that runs the daemon of a rack.
    mok: the key that DKMS signs kernel modules with.
    """

    driver: str = "auto"
    kernel_module: Literal["auto", "open", "proprietary"] = "auto"
    source: Literal["auto", "nvidia", "debian", "ubuntu"] = "auto"
    cuda: str = "auto"
    cudnn: str = "auto"
    nccl: str = "auto"
    container_toolkit: str = "auto"
    container_engines: Literal["auto", "leave"] = "auto"
    dcgm: str = "none"
    torch: str = "auto"
    torch_origin: Literal["auto", "pypi", "any"] = "auto"
    tensorflow: str = "auto"
    prefer: Literal["longest-supported", "production", "newest"] = "longest-supported"
    end_of_life_os: Literal["refuse", "allow"] = "refuse"
    kernel_lock: Literal["leave", "hold"] = "leave"
    module_options: dict[str, str] = msgspec.field(default_factory=dict)
    driver_extra: tuple[str, ...] = ()
    imex: Imex = Imex()
    mok: Mok = Mok()
    tuning: Tuning = Tuning()
    repositories: dict[str, Repository] = msgspec.field(default_factory=dict)


# Keys that are not stated above are defined by their component, with the default.
ADDED = [(row.name, str, row.default) for row in VERSIONED if row.name not in SpecFields.__struct_fields__]
if TYPE_CHECKING:
    StackSpec = SpecFields
else:
    StackSpec = msgspec.defstruct("StackSpec", ADDED, bases=(SpecFields,), frozen=True, kw_only=True, module=__name__)
    StackSpec.__doc__ = SpecFields.__doc__

CHOICES = {
    field.name: get_args(field.type) for field in msgspec.structs.fields(StackSpec) if get_origin(field.type) is Literal
}
VERSIONS = {row.name: row for row in VERSIONED}
# Of --want: ``cuda=12.9``, ``cuda==12.9``, ``cuda>=12.8,<13``.
WANTED = re.compile(r"(?P<name>[^=<>!~]*)(?:==?(?P<exact>.*)|(?P<range>[<>!~].*))", re.DOTALL)


def check_value(key: str, value: str) -> None:
    """Raise ValueError if ``value`` is not valid for ``key``."""
    if key in CHOICES and value not in CHOICES[key]:
        raise ValueError(f"{value!r} is not possible. {did_you_mean(value, CHOICES[key])}")
    if key in VERSIONS:
        VERSIONS[key].check(value)


def wants(items: tuple[str, ...], base: StackSpec | None = None) -> StackSpec:
    """Return a specification from ``component=version`` arguments. Raises SpecError."""
    fields: dict[str, str] = {}
    known = (*VERSIONS, *(row.name for row in COMPONENTS if row.choices), "source", "torch_origin")
    for item in items:
        found = WANTED.fullmatch(item)
        if found is None:
            raise SpecError(f"--want {item}: write component=version, for example cuda=12.9 or 'cuda>=12.8,<13'")
        key, value = found["name"].strip().replace("-", "_"), found["exact"] or found["range"] or ""
        if key not in known:
            raise SpecError(f"--want {item}: {key!r} is not a component. {did_you_mean(key, known)}")
        if key in fields:
            raise SpecError(f"--want {item}: {key} is stated twice, as {fields[key]} before; keep one")
        try:
            check_value(key, value.strip())
        except ValueError as error:
            raise SpecError(f"--want {item}: {error}") from None
        fields[key] = value.strip()
    spec = msgspec.structs.replace(base or StackSpec(), **fields)
    for keys, problem in contradictions(spec):
        raise SpecError(f"--want {keys[-1]}={getattr(spec, keys[-1])}: {problem}")
    return spec


def contradictions(spec: StackSpec) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield contradictions of a specification that hold on every host: the two keys, and why."""
    yield from (found for row in COMPONENTS for found in row.contradictions(spec))
    if managed(spec) and spec.source not in ("auto", "nvidia"):
        because = f"source: {spec.source} adds components to the hosts' package sources, which managed does not allow"
        yield ("source", "repositories"), because


def managed(spec: StackSpec) -> bool:
    """Return whether the hosts' own package sources have all packages, so that none is added."""
    return MANAGED in spec.repositories


def read_spec(path: Path) -> StackSpec:
    """Return the specification in a file. Raises SpecError with file, line and key, and UnreadableInput."""
    return parse_spec(read_text(path, MOST_BYTES, "Give another file with --spec"), str(path))


def parse_spec(text: str, name: str) -> StackSpec:
    """Return the specification in YAML text. Raises SpecError naming ``name``, the line and the key."""
    try:
        written = Written(text, name)
        spec = written.read(StackSpec, READ, BLOCKS, {}, SCHEMA) if written.node else StackSpec()
        for (one, other), problem in contradictions(spec):
            raise written.problem(f"contradicts line {written.line(one)}: {problem}", other)
    except DocumentProblem as problem:
        raise SpecError(str(problem)) from None
    return msgspec.structs.replace(spec, driver_extra=tuple(sorted(set(spec.driver_extra))))


def _version(key: str, text: str) -> str:
    check_value(key, text)
    return text


def _repositories(rows: dict[str, Any]) -> dict[str, Any]:
    if MANAGED in rows:
        raise Misplaced(MANAGED, "must be the only value, for all repositories: repositories: managed")
    for name, row in rows.items():
        must_be_key(name, (*REPOSITORIES, *CUDA_REPOSITORIES))
        if name != EPEL and isinstance(row, dict) and row.get("url") == NONE:
            raise Misplaced(
                name, f"only {EPEL} can be {NONE}; with repositories: {MANAGED} the hosts' sources have all"
            )
    return rows


def _address(text: str) -> str:
    """The address of a mirror or key. An empty one, as of a variable without a value, would mean the public one."""
    if not ADDRESS.fullmatch(text.replace("{distro}", "rhel9").replace("{arch}", "x86_64")):
        raise ValueError(
            f"{text!r} is not an address such as https://mirror.example/cuda/{{distro}}/{{arch}}/, which can hold "
            "{distro} and {arch}"
        )
    return text


def _fingerprint(text: str) -> str:
    if not FINGERPRINTS.fullmatch(re.sub(r"\s", "", text)):
        raise ValueError(
            f"{text!r} is not a fingerprint of 40 or 64 hex digits, or {DIGEST} and the digest of the key file; "
            "several are separated by commas"
        )
    return text


READ: Hooks = {
    **SETTINGS,
    **{key: partial(_version, key) for key in VERSIONS},
    "repositories": instead(**{"": {}, "auto": {}, MANAGED: {MANAGED: {}}}),
    "repositories.epel": instead(none={"url": NONE}),
    "repositories.*.url": lambda text: text if text == NONE else _address(text),
    "repositories.*.key_url": _address,
    "repositories.*.key_fingerprint": _fingerprint,
}
BLOCKS: Hooks = {**SETTING_BLOCKS, "repositories": _repositories}
