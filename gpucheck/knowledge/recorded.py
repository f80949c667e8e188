"""Which packages public documents show in which directory of NVIDIA's repositories (recorded.yml)."""

import re
from typing import Literal

from gpucheck.knowledge._load import Table, table

# The container toolkit's own repository, separate from the directories by system.
TOOLKIT = "libnvidia-container"
DIST_TAG = re.compile(r"\.(el\d+|amzn2023)$")


class RecordedTable(Table, frozen=True, kw_only=True):
    """recorded.yml. folders: directory -> architecture -> package -> versions, () where the name was seen alone.

    streams: directory -> module streams of nvidia-driver.
    """

    schema_: Literal["gpucheck.knowledge.recorded/1"]
    folders: dict[str, dict[str, dict[str, tuple[str, ...]]]]
    streams: dict[str, tuple[str, ...]]


def recorded() -> RecordedTable:
    """The whole table. Raises KnowledgeError if the file is damaged."""
    return table("recorded.yml", RecordedTable)


def is_recorded(folder: str, arch: str, name: str, version: str | None) -> bool:
    """Whether a document shows this package there; version None: any version of it.

    A recorded version without an epoch matches any epoch.
    """
    seen = recorded().folders.get(folder, {}).get(arch, {}).get(name)
    if seen is None or version is None:
        return seen is not None
    return any(version == one or version.partition(":")[2] == one for one in seen)


def recorded_versions(folder: str, name: str) -> tuple[str, ...]:
    """Every version of a package that documents show in a directory, on any architecture, without its revision."""
    arches = recorded().folders.get(folder, {}).values()
    return tuple(dict.fromkeys(version.partition("-")[0] for names in arches for version in names.get(name, ())))


def recorded_packages(folder: str, arch: str, name: str) -> tuple[str, ...]:
    """Every complete version of a package that is seen in a directory for an architecture, without its epoch."""
    seen = recorded().folders.get(folder, {}).get(arch, {}).get(name, ())
    return tuple(dict.fromkeys(version.partition(":")[2] or version for version in seen))


def nearest(folder: str, arch: str, name: str, version: str) -> str:
    """Where a document shows the same version of the same package else, ``rhel10 x86_64: 580.178.04-1.el10``, or "".

    Looked for in the directories that are built from the same sources, the own directory's other architecture first.
    """
    family = next((words for words in FAMILIES if folder.startswith(words)), (folder,))
    others = [name for name in recorded().folders if name.startswith(family)]
    for other in sorted(others, key=lambda other: other != folder):
        for own, names in recorded().folders[other].items():
            for seen in names.get(name, ()) if (other, own) != (folder, arch) else ():
                if _plain(seen) == _plain(version):
                    return f"{other} {own}: {seen}"
    return ""


FAMILIES = (("rhel", "amzn"), ("ubuntu",), ("debian",))


def _plain(version: str) -> str:
    return DIST_TAG.sub("", version.rpartition(":")[2])
