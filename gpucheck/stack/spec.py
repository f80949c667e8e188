"""stack.yml, the stack specification. Every value may be ``auto``; a mistake is one message with file, line and key."""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from gpucheck.foreign import read_text
from gpucheck.knowledge.strict import EmptyDocument, InputProblem, Value, document
from gpucheck.stack.components import COMPONENTS, VERSIONED
from gpucheck.stack.components.base import MANAGED
from gpucheck.stack.settings.driver_extra import read_driver_extra
from gpucheck.stack.settings.imex import Imex, read_imex
from gpucheck.stack.settings.module_options import read_module_options
from gpucheck.stack.settings.mok import Mok, host_path, read_mok
from gpucheck.stack.settings.tuning import Tuning, read_tuning

SCHEMA = "gpucheck.spec/1"
FORMER = "gpucheck.wish/1"
MOST_BYTES = 1 << 20


class SpecError(Exception):
    """stack.yml or --want is invalid. The message states where, and what to do."""


CLIENT = ("client_certificate", "client_key")
SIGNED = ("packages", "metadata", "both")
_ONE = "(?:[0-9A-Fa-f]{40}|[0-9A-Fa-f]{64})"
FINGERPRINTS = re.compile(f"{_ONE}(?:,{_ONE})*")


class Repository(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A site's own mirror. url and key_url may hold ``{distro}`` (rhel9) and ``{arch}`` (x86_64 or sbsa).

    key_fingerprint: of the signing key; several, separated by commas, if the key file holds several keys.
    signed: what of an rpm repository carries the mirror's signature: packages, metadata or both.
    Of epel the url may be ``none``: the hosts' own sources hold DKMS.
    client_certificate, client_key: paths on the hosts of what an https mirror asks for, both or none.
    """

    url: str | None = None
    key_url: str | None = None
    key_fingerprint: str | None = None
    signed: Literal["packages", "metadata", "both"] | None = None
    client_certificate: str | None = None
    client_key: str | None = None


class SpecFields(msgspec.Struct, frozen=True, kw_only=True):
    """What the site wants; see the comments in stack.yml at the root of the project.

    driver: a branch (580), a version (580.178.04), or one with its package revision (580.95.05-0ubuntu1).
    kernel: keep the running kernel, or upgrade it where no source of the host has its headers.
    kernel_lock: hold the kernel packages that a host has, or leave them to its own upgrades.
    source: NVIDIA's repositories (auto is that too), Debian's own archive, or Ubuntu's for the driver alone.
    container_engines: auto = Docker and kubelet's containerd are told of the GPUs where the toolkit is installed.
    driver_extra: parts of the driver that its compute-only packages lack, by the words of options.yml, sorted.
    torch_origin: where torch's wheel may be from. auto: PyPI first, then PyTorch's own index; pypi: PyPI alone; any:
    the newest of both.
    dcgm, gdrcopy: options, so none is what a site that says nothing gets. imex: who runs the daemon of a rack.
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
    gdrcopy: str = "none"
    torch: str = "auto"
    torch_origin: Literal["auto", "pypi", "any"] = "auto"
    tensorflow: str = "auto"
    prefer: Literal["longest-supported", "production", "newest"] = "longest-supported"
    end_of_life_os: Literal["refuse", "allow"] = "refuse"
    kernel: Literal["keep", "upgrade"] = "keep"
    kernel_lock: Literal["leave", "hold"] = "leave"
    module_options: dict[str, str] = msgspec.field(default_factory=dict)
    driver_extra: tuple[str, ...] = ()
    imex: Imex = Imex()
    mok: Mok = Mok()
    tuning: Tuning = Tuning()
    repositories: dict[str, Repository] = msgspec.field(default_factory=dict)


# A component whose key is not stated above brings it, with its default.
ADDED = [(row.name, str, row.default) for row in VERSIONED if row.name not in SpecFields.__struct_fields__]
if TYPE_CHECKING:
    StackSpec = SpecFields
else:
    StackSpec = msgspec.defstruct("StackSpec", ADDED, bases=(SpecFields,), frozen=True, kw_only=True, module=__name__)
    StackSpec.__doc__ = SpecFields.__doc__

CHOICES = {
    **{row.name: row.choices for row in COMPONENTS if row.choices},
    "source": ("auto", "nvidia", "debian", "ubuntu"),
    "torch_origin": ("auto", "pypi", "any"),
    "container_engines": ("auto", "leave"),
    "prefer": ("longest-supported", "production", "newest"),
    "end_of_life_os": ("refuse", "allow"),
    "kernel": ("keep", "upgrade"),
    "kernel_lock": ("leave", "hold"),
}
VERSIONS = {row.name: row for row in VERSIONED}


def did_you_mean(word: str, known: tuple[str, ...]) -> str:
    """`` Did you mean cudnn?`` or the whole list when nothing is near."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else f"Known here: {', '.join(known)}."


def check_value(key: str, value: str) -> None:
    """Raise ValueError if ``value`` is nothing that ``key`` can be."""
    if key in CHOICES and value not in CHOICES[key]:
        raise ValueError(f"{value!r} is not possible. {did_you_mean(value, CHOICES[key])}")
    if key in VERSIONS:
        VERSIONS[key].check(value)


def wants(items: tuple[str, ...], base: StackSpec | None = None) -> StackSpec:
    """A specification from ``component=version`` words. Raises SpecError."""
    fields: dict[str, str] = {}
    known = (*VERSIONS, *(row.name for row in COMPONENTS if row.choices), "source", "torch_origin")
    for item in items:
        name, operator, value = item.partition("=")
        if not operator:
            name, value = _split_range(item)
        elif value.startswith("="):
            value = value[1:]
        elif name and name[-1] in "<>!~":
            name, value = name[:-1], f"{name[-1]}={value}"
        key = name.strip().replace("-", "_")
        if key not in known:
            raise SpecError(f"--want {item}: {key!r} is no component. {did_you_mean(key, known)}")
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
    """What in a specification rules itself out on every host: the two keys, and why."""
    yield from (found for row in COMPONENTS for found in row.contradictions(spec))
    if managed(spec) and spec.source not in ("auto", "nvidia"):
        because = f"source: {spec.source} adds components to the hosts' package sources, and managed leaves those alone"
        yield ("source", "repositories"), because
    if spec.kernel == "upgrade" and spec.source == "ubuntu":
        because = "the kernel is held with the driver, whose modules are built for it. Leave kernel: upgrade out"
        yield ("source", "kernel"), because
    if spec.kernel == "upgrade" and spec.kernel_lock == "hold":
        yield (
            ("kernel", "kernel_lock"),
            "a kernel that is held cannot be upgraded. Set kernel: keep, or kernel_lock: leave",
        )


def managed(spec: StackSpec) -> bool:
    """Whether the hosts' own package sources hold everything, so that none is added."""
    return MANAGED in spec.repositories


def _split_range(item: str) -> tuple[str, str]:
    for index, letter in enumerate(item):
        if letter in "<>!~":
            return item[:index], item[index:]
    raise SpecError(f"--want {item}: say component=version, for example cuda=12.9 or 'cuda>=12.8,<13'")


def read_spec(path: Path) -> StackSpec:
    """The specification in a file. Raises SpecError with file, line and key, and UnreadableInput."""
    return parse_spec(read_text(path, MOST_BYTES, "Give another file with --spec"), str(path))


def parse_spec(text: str, name: str) -> StackSpec:
    """The specification in YAML text. Raises SpecError naming ``name``, the line and the key."""
    try:
        top = document(text, shape="A specification is a few levels deep", example="Every value may be auto")
        return _spec(dict(top.pairs()), name)
    except EmptyDocument:
        return StackSpec()
    except InputProblem as problem:
        raise SpecError(problem.inside(name)) from None


def _spec(values: dict[str, Value], name: str) -> StackSpec:
    schema = values.pop("schema", None)
    if schema is not None and schema.text() not in (SCHEMA, FORMER):
        raise schema.problem(f"{schema.text()!r} is not {SCHEMA!r}, the only one known")
    for key, value in values.items():
        if key not in StackSpec.__struct_fields__:
            raise value.problem(f"no such key. {did_you_mean(key, (*StackSpec.__struct_fields__, 'schema'))}")
    stated = dict(values)
    blocks = ("repositories", "tuning", "module_options", "driver_extra", "imex", "mok")
    repositories, tuning, options, extra, imex, mok = (values.pop(key, None) for key in blocks)
    fields = {key: _checked(key, value) for key, value in values.items()}
    spec = StackSpec(
        **fields,  # type: ignore[arg-type]
        module_options=read_module_options(options) if options else {},
        driver_extra=read_driver_extra(extra) if extra else (),
        imex=read_imex(imex) if imex else Imex(),
        mok=read_mok(mok) if mok else Mok(),
        tuning=read_tuning(tuning) if tuning else Tuning(),
        repositories=_repositories(repositories) if repositories else {},
    )
    for (one, other), problem in contradictions(spec):
        where = f"{name}:{stated[other].line}: {other}"
        raise SpecError(f"{where}: contradicts line {stated[one].line}: {problem}")
    return spec


def _checked(key: str, value: Value) -> str:
    text = value.text()
    try:
        check_value(key, text)
    except ValueError as error:
        raise value.problem(str(error)) from None
    return text


def _repositories(value: Value) -> dict[str, Repository]:
    if not value.is_mapping and value.text() in ("", "auto"):
        return {}
    if not value.is_mapping and value.text() == MANAGED:
        return {MANAGED: Repository()}
    rows = dict(value.pairs())
    if MANAGED in rows:
        raise rows[MANAGED].problem("stands alone, for all repositories: repositories: managed")
    return {key: _unwanted(key, inner) or _repository(inner) for key, inner in rows.items()}


def _unwanted(key: str, value: Value) -> Repository | None:
    """``epel: none`` where the site's other sources hold DKMS."""
    return Repository(url="none") if key == "epel" and not value.is_mapping and value.word("none") else None


def _repository(value: Value) -> Repository:
    fields: dict[str, str] = {}
    for field, inner in value.pairs():
        if field not in Repository.__struct_fields__:
            raise inner.problem(f"no such key. {did_you_mean(field, Repository.__struct_fields__)}")
        fields[field] = host_path(inner) if field in CLIENT else inner.text()
        if field == "signed" and fields[field] not in SIGNED:
            raise inner.problem(f"{fields[field]!r} is none of {', '.join(SIGNED)}")
        if field == "key_fingerprint" and not FINGERPRINTS.fullmatch(re.sub(r"\s", "", fields[field])):
            raise inner.problem(
                f"{fields[field]!r} is not a fingerprint of 40 or 64 hex digits; several are separated by commas"
            )
    lacking = [name for name in CLIENT if name not in fields]
    if len(lacking) == 1:
        raise value.problem(f"{lacking[0]} is missing: a mirror takes a client certificate with its key")
    if not lacking and not fields.get("url", "").startswith("https://"):
        raise value.problem("a client certificate needs the url of an https mirror")
    return msgspec.convert(fields, Repository)
