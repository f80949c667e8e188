"""The stub packages of the lab's mirror: NVIDIA's real names, versions, epochs and relations, as data.

Each ``*.yml`` here but repositories.yml and modules.yml is a list of sets: packages that share versions, epoch and
revision. In every text ``{version}`` is the upstream version, ``{full}`` the package's own full one, ``{short}``
its first two numbers.
"""

from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpucheck.simulator.data import read

HERE = Path(__file__).parent
KEY_NAME = "key.asc"


class Repository(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A repository of the mirror. path, key and alias: below the mirror's root. origin: of its Release file.

    The key is also in the repository's folder, as key.asc. alias: a second address of the same folder.
    """

    kind: Literal["deb", "rpm"]
    path: str
    key: str
    origin: str
    alias: str | None = None


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file of a package: its text, or the name of a file in images/lab/payload."""

    text: str | None = None
    payload: str | None = None
    mode: str = "0644"


class Template(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package as a catalogue file writes it.

    depends: in the package manager's own syntax. nvml, cuda: the folders that get the simulated libraries.
    on_install, on_remove: shell, run after the files are there and before they go for good. service: a systemd unit.
    """

    summary: str
    depends: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    files: dict[str, File] = {}
    links: dict[str, str] = {}
    nvml: str | None = None
    cuda: str | None = None
    on_install: str | None = None
    on_remove: str | None = None
    service: str | None = None


class PackageSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Packages that share repositories, versions, epoch and revision."""

    repositories: tuple[str, ...]
    versions: tuple[str, ...]
    revision: str
    epoch: int | None = None
    packages: dict[str, Template]


class Package(Template, frozen=True, kw_only=True):
    """One package in one version, as the mirror builds it."""

    repository: str
    kind: Literal["deb", "rpm"]
    name: str
    version: str
    revision: str
    epoch: int | None

    @property
    def full_version(self) -> str:
        """Epoch, version and revision, as the package manager prints them."""
        return full_version(self.epoch, self.version, self.revision)


class Stream(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stream of a dnf module: the versions in it, and what it has beyond the common packages."""

    versions: tuple[str, ...]
    packages: tuple[str, ...]


class Modules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dnf module and its streams."""

    module: str
    repository: str
    default_stream: str
    common: tuple[str, ...]
    streams: dict[str, Stream]


def full_version(epoch: int | None, version: str, revision: str) -> str:
    """``3:580.178.04-1.el9``; without an epoch ``9.10.2.21-1``."""
    return f"{version}-{revision}" if epoch is None else f"{epoch}:{version}-{revision}"


@cache
def repositories() -> dict[str, Repository]:
    return read(HERE / "repositories.yml", dict[str, Repository])


@cache
def modules() -> Modules:
    return read(HERE / "modules.yml", Modules)


@cache
def packages() -> tuple[Package, ...]:
    """Every package of the catalogue. Raises ValueError naming the file that is wrong."""
    found: list[Package] = []
    for path in sorted(HERE.glob("*.yml")):
        if path.name in ("repositories.yml", "modules.yml"):
            continue
        for one in read(path, tuple[PackageSet, ...]):
            found += _expand(one)
    return tuple(found)


def _expand(one: PackageSet) -> list[Package]:
    found = []
    for repository in one.repositories:
        for version in one.versions:
            words = {
                "version": version,
                "full": full_version(one.epoch, version, one.revision),
                "short": ".".join(version.split(".")[:2]),
            }
            for name, template in one.packages.items():
                filled = msgspec.convert(_fill(msgspec.to_builtins(template), words), Template)
                own = {field: getattr(filled, field) for field in Template.__struct_fields__}
                own |= {"repository": repository, "kind": repositories()[repository].kind, "version": version}
                own |= {"revision": one.revision, "epoch": one.epoch, "name": name.format_map(words)}
                found.append(Package(**own))
    return found


def _fill(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, str):
        return value.format_map(words)
    if isinstance(value, dict):
        return {_fill(key, words): _fill(item, words) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_fill(item, words) for item in value]
    return value


def to_json() -> bytes:
    """The whole catalogue for the mirror's build script."""
    return msgspec.json.encode({"repositories": repositories(), "modules": modules(), "packages": packages()})
