"""What the repositories of a plan hold, as recorded.yml: stated versions that the tables lack are found there."""

import re
from collections.abc import Iterable
from datetime import datetime

import yaml

from gpucheck.knowledge.recorded import TOOLKIT
from gpucheck.repositories.index import Index

HEAD = """\
# What the package repositories hold, read by gpucheck stack check-repositories.
# To use it, name its folder: gpucheck stack --knowledge-dir FOLDER.
"""
# Packages that a specification can state a version of, or that are released with the driver.
NAMES = re.compile(
    r"cuda-toolkit-\d+-\d+|libcudnn9-(headers-|dev-|devel-)?cuda-\d+|libnccl(2|-dev|-devel)?|"
    r"datacenter-gpu-manager-4-[a-z0-9-]+|(lib)?nvidia-container[a-z0-9-]*|(lib)?nvidia-[a-z0-9.-]+|kmod-nvidia-[a-z-]+|nvlsm|libnvsdm|libnvcuvid1"
)
# An index is signed, and still the text of others: it becomes part of a file that is read again.
VERSION = re.compile(r"[0-9][0-9A-Za-z.+:~-]{0,79}")

Folders = dict[str, dict[str, dict[str, list[str]]]]


def record(folders: Folders, name: str, folder: str, arch: str, index: Index) -> None:
    """Add the packages of an index. name: of its repository; those of others than NVIDIA's folders are left out."""
    if name == "nvidia-container-toolkit":
        folder = TOOLKIT
    elif not name.startswith(("nvidia-cuda", "cuda-")):
        return
    names = folders.setdefault(folder, {}).setdefault(arch, {})
    for package, rows in index.packages.items():
        if NAMES.fullmatch(package):
            _extend(names.setdefault(package, []), (row.version for row in rows))


def _extend(known: list[str], versions: Iterable[str]) -> None:
    known += [version for version in dict.fromkeys(versions) if VERSION.fullmatch(version) and version not in known]


def record_text(folders: Folders, now: datetime) -> str:
    """The file."""
    rows = {"schema": "gpucheck.knowledge.recorded/1", "as_of": now.date().isoformat(), "folders": folders}
    body: str = yaml.safe_dump(rows, sort_keys=True, width=120)
    return HEAD + body
