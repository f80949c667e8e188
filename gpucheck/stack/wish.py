"""stack.yml: the site's wish. Every value may be ``auto``; a mistake is one message with file, line and key."""

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from gpucheck.knowledge._load import Loader
from gpucheck.stack.versions import request

SCHEMA = "gpucheck.wish/1"


class WishError(Exception):
    """stack.yml, or a wish on the command line, cannot be understood. The message says where and what to do."""


SIGNED = ("packages", "metadata", "both")


class Repository(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A site's own mirror. url and key_url may hold ``{distro}`` (rhel9) and ``{arch}`` (x86_64 or sbsa).

    signed: what of an rpm repository carries the mirror's signature: packages, metadata or both.
    """

    url: str | None = None
    key_url: str | None = None
    key_fingerprint: str | None = None
    signed: Literal["packages", "metadata", "both"] | None = None


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the site wants; see the comments in stack.yml at the root of the project.

    driver: a branch (580), a version (580.178.04), or one with its package revision (580.95.05-0ubuntu1).
    """

    driver: str = "auto"
    kernel_module: Literal["auto", "open", "proprietary"] = "auto"
    cuda: str = "auto"
    cudnn: str = "auto"
    nccl: str = "auto"
    container_toolkit: str = "auto"
    torch: str = "auto"
    tensorflow: str = "auto"
    prefer: Literal["longest-supported", "production", "newest"] = "longest-supported"
    end_of_life_os: Literal["refuse", "allow"] = "refuse"
    repositories: dict[str, Repository] = msgspec.field(default_factory=dict)


COMPONENTS = ("driver", "cuda", "cudnn", "nccl", "container_toolkit", "torch", "tensorflow")
CHOICES = {
    "kernel_module": ("auto", "open", "proprietary"),
    "prefer": ("longest-supported", "production", "newest"),
    "end_of_life_os": ("refuse", "allow"),
}


def did_you_mean(word: str, known: tuple[str, ...]) -> str:
    """`` Did you mean cudnn?`` or the whole list when nothing is near."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else f"Known here: {', '.join(known)}."


def check_value(key: str, value: str) -> None:
    """Raise ValueError if ``value`` is nothing that ``key`` can be."""
    if key in CHOICES and value not in CHOICES[key]:
        raise ValueError(f"{value!r} is not possible. {did_you_mean(value, CHOICES[key])}")
    if key == "driver" and value == "none":
        raise ValueError("'none' is not possible: a GPU host needs a driver. Say auto, a branch or a version.")
    if key in COMPONENTS:
        request(value)


def wants(items: tuple[str, ...], base: Wish | None = None) -> Wish:
    """A wish from ``component=version`` words. Raises WishError."""
    fields: dict[str, str] = {}
    known = (*COMPONENTS, "kernel_module")
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
            raise WishError(f"--want {item}: {key!r} is no component. {did_you_mean(key, known)}")
        try:
            check_value(key, value.strip())
        except ValueError as error:
            raise WishError(f"--want {item}: {error}") from None
        fields[key] = value.strip()
    wish = msgspec.structs.replace(base or Wish(), **fields)
    for keys, problem in contradictions(wish):
        raise WishError(f"--want {keys[-1]}={getattr(wish, keys[-1])}: {problem}")
    return wish


def contradictions(wish: Wish) -> Iterator[tuple[tuple[str, str], str]]:
    """What in a wish rules itself out on every host: the two keys, and why."""
    if request(wish.cuda).none:
        for key in ("cudnn", "nccl"):
            if request(getattr(wish, key)).explicit:
                yield (
                    ("cuda", key),
                    "cuda is none, and this is built for one CUDA major. State a cuda, or none here too.",
                )
    toolkit, build = request(wish.cuda).prefix, request(wish.nccl).build
    if toolkit and build.startswith("cuda") and build[4:].partition(".")[0] != str(toolkit[0]):
        yield ("cuda", "nccl"), f"cuda is {wish.cuda}, and this build is for {build}. Both must be of one CUDA major."


def _split_range(item: str) -> tuple[str, str]:
    for index, letter in enumerate(item):
        if letter in "<>!~":
            return item[:index], item[index:]
    raise WishError(f"--want {item}: say component=version, for example cuda=12.9 or 'cuda>=12.8,<13'")


def read_wish(path: Path) -> Wish:
    """The wish in a file. Raises WishError with file, line and key."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise WishError(f"{path}: cannot be read: {reason}. Give another file with --wish.") from None
    return parse_wish(text, str(path))


def parse_wish(text: str, name: str) -> Wish:
    """The wish in YAML text. Raises WishError naming ``name``, the line and the key."""
    try:
        # Composed, not loaded: every scalar stays as it was written. As a YAML number, cuda 13.10 would become 13.1.
        node = yaml.compose(text, Loader=Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        raise WishError(f"{where}: not YAML: {getattr(error, 'problem', None) or error}") from None
    if node is None:
        return Wish()
    fields: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key, value, line in _pairs(node, name):
        where = f"{name}:{line}: {key}"
        if key == "schema":
            if _scalar(value, where) != SCHEMA:
                raise WishError(f"{where}: {value.value!r} is not {SCHEMA!r}, the only one known")
            continue
        if key not in Wish.__struct_fields__:
            raise WishError(f"{where}: no such key. {did_you_mean(key, (*Wish.__struct_fields__, 'schema'))}")
        if key in fields:
            raise WishError(f"{where}: stated twice; keep one")
        lines[key] = line
        fields[key] = (
            _repositories(value, name) if key == "repositories" else _checked(key, _scalar(value, where), where)
        )
    wish = Wish(**fields)
    for (one, other), problem in contradictions(wish):
        raise WishError(f"{name}:{lines[other]}: {other}: contradicts line {lines[one]}: {problem}")
    return wish


def _checked(key: str, value: str, where: str) -> str:
    try:
        check_value(key, value)
    except ValueError as error:
        raise WishError(f"{where}: {error}") from None
    return value


def _pairs(node: Any, name: str) -> list[tuple[str, Any, int]]:
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.MappingNode):
        raise WishError(f"{name}:{line}: this must be 'key: value' lines")
    return [(str(key.value), value, key.start_mark.line + 1) for key, value in node.value]


def _scalar(node: Any, where: str) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise WishError(f"{where}: must be a single value, not a list or a block")
    return str(node.value)


def _repositories(node: Any, name: str) -> dict[str, Repository]:
    if isinstance(node, yaml.ScalarNode) and node.value in ("", "auto"):
        return {}
    repositories = {}
    for key, value, _line in _pairs(node, name):
        fields: dict[str, str] = {}
        for field, inner, inner_line in _pairs(value, name):
            where = f"{name}:{inner_line}: repositories.{key}.{field}"
            if field not in Repository.__struct_fields__:
                raise WishError(f"{where}: no such key. {did_you_mean(field, Repository.__struct_fields__)}")
            fields[field] = _scalar(inner, where)
            if field == "signed" and fields[field] not in SIGNED:
                raise WishError(f"{where}: {fields[field]!r} is none of {', '.join(SIGNED)}")
        repositories[key] = msgspec.convert(fields, Repository)
    return repositories
