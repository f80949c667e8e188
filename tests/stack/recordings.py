"""What public documents show of NVIDIA's folders (tests/data/repositories), and the judge of a spec against it.

``python -m tests.stack.recordings`` writes the part of it that plans need to gpucheck/knowledge/recorded.yml.
"""

import csv
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

DATA = Path(__file__).parent.parent / "data" / "repositories"
TABLE = Path(__file__).parent.parent.parent / "gpucheck" / "knowledge" / "recorded.yml"
TOOLKIT = "libnvidia-container"
# Packages that a plan can name; other lines are evidence for the judge alone.
PLANNED = re.compile(
    r"nvidia-driver-pinning-.*|libnvidia-compute.*|nvidia-dkms.*|nvidia-utils-.*|nvidia-persistenced|nvidia-modprobe|"
    r"nvidia-driver-(cuda|cuda-libs|common)|nvidia-kernel(-open)?-dkms|libnvidia-ml|nvidia-kmod-common|kmod-nvidia-.*|"
    r"(nvidia-fabricmanager|libnvidia-nscq|nvidia-imex)(-\d+)?|nvlsm|cuda-toolkit-(\d+-\d+|config-common)|libcudnn9-.*|libnccl.*|"
    r"libnvidia-(encode|decode|gl|cfg|fbc)1?(-\d+)?|libnvcuvid1|nvidia-compute-utils(-\d+)?|nvidia-driver-libs|libnvsdm|"
    r"(lib)?nvidia-container.*|datacenter-gpu-manager-4-.*"
)
# Built together: one revision for all of them at one version.
FABRIC = re.compile(r"(nvidia-fabric-?manager(-devel)?|libnvidia-nscq|nvidia-imex|libnvsdm(-devel)?)(-\d+)?")
HEAD = """\
# Packages that public documents show, by directory of NVIDIA's repositories: plans report others as unconfirmed.
# Made by: python -m tests.stack.recordings, from tests/data/repositories, where each line has its source and date.
# folder: {architecture: {package: versions}}, an empty list where the name was seen without a version.
"""


class Sighting(NamedTuple):
    """A line of a folder's file. version empty: the name alone was seen."""

    name: str
    version: str
    arch: str
    seen: str
    kind: str
    sure: str
    source: str
    note: str


@lru_cache(maxsize=1)
def sightings() -> dict[str, tuple[Sighting, ...]]:
    """Every line by folder, also those that are not sure."""
    found = {}
    for path in sorted(DATA.glob("*.tsv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
        found[path.stem] = tuple(Sighting(*row, *[""] * (8 - len(row))) for row in rows)
    return found


def sure(folder: str) -> Iterator[Sighting]:
    """The lines that something may be decided on."""
    return (row for row in sightings().get(folder, ()) if row.sure != "no")


@lru_cache(maxsize=8)
def document(name: str) -> tuple[dict[str, Any], ...]:
    """The rows of complete.yml, keys.yml or streams.yml."""
    rows = yaml.safe_load((DATA / f"{name}.yml").read_text(encoding="utf-8"))[name]
    return tuple(row for row in rows if row.get("sure") is not False)


def kin(folder: str) -> list[str]:
    """Folders built from the same sources: the dist tag differs, nothing else."""
    families = (("rhel", "amzn"), ("ubuntu",), ("debian",), (TOOLKIT,))
    family = next(names for names in families if folder.startswith(names))
    return [name for name in sightings() if name.startswith(family)]


def plain(version: str) -> str:
    """Without epoch, and with one word for every dist tag."""
    return re.sub(r"\.(el\d+|amzn2023)$", ".DIST", version.partition(":")[2] or version)


def upstream(version: str) -> str:
    """The version without epoch and revision; of NCCL with its CUDA build, as many exist of one version."""
    number, _, revision = (version.partition(":")[2] or version).partition("-")
    return number + revision[revision.find("+") :] if "+cuda" in revision else number


def judge(folder: str, arch: str, name: str, version: str | None) -> tuple[str, str]:
    """(seen, wrong or unknown; why). wrong: a document shows the package otherwise, or says that it is not there."""
    for row in document("complete"):
        if row["folder"] == folder and row["arch"] in (arch, "any") and re.fullmatch(row["match"], name):
            if version and not re.match(row.get("versions", ""), upstream(version)):
                continue
            if name not in row.get("only_names", [name]):
                return "wrong", f"{name} is not in {folder}: {row['says']} ({row['source']})"
            branch = re.search(r"\d{3}", f"{name} {upstream(version or '')}")
            if branch and int(branch[0]) < int(row.get("first_branch", 0)):
                return "wrong", f"{folder} {arch} starts at {row['first_branch']}: {row['says']} ({row['source']})"
    if any(row.name == name and row.arch == arch and _same(version, row.version) for row in sure(folder)):
        return "seen", ""
    contrary = _contrary(folder, name, version) if version else ""
    return ("wrong", contrary) if contrary else ("unknown", "")


def _same(version: str | None, seen: str) -> bool:
    """A line without an epoch says nothing of it."""
    if version is None or not seen:
        return version is None
    return version == seen if ":" in seen else version.rpartition(":")[2] == seen


def _contrary(folder: str, name: str, version: str) -> str:
    """A line of a kindred folder with the same package at the same version and another revision, and none with this."""
    others = []
    for other in kin(folder):
        for row in sure(other):
            same = row.name == name or (FABRIC.fullmatch(row.name) and FABRIC.fullmatch(name))
            if same and row.version and upstream(row.version) == upstream(version):
                if plain(row.version) == plain(version):
                    return ""
                others.append(f"{other} has {row.name} {row.version} ({row.source})")
    return "; ".join(others)


def table_text() -> str:
    """recorded.yml as it has to be."""
    folders: dict[str, Any] = {}
    for folder in sightings():
        for row in sorted(sure(folder)):
            if PLANNED.fullmatch(row.name):
                names = folders.setdefault(folder, {}).setdefault(row.arch, {})
                versions = names.setdefault(row.name, [])
                if row.version and row.version not in versions:
                    versions.append(row.version)
    lines = [HEAD, "schema: gpucheck.knowledge.recorded/1\n", 'as_of: "2026-11-22"\n', "source: [cuda-repo]\n"]
    lines.append("folders:\n")
    for folder, arches in sorted(folders.items()):
        lines.append(f"  {folder}:\n")
        for arch, names in sorted(arches.items()):
            lines.append(f"    {arch}:\n")
            lines += [f"      {name}: [{', '.join(map(_quoted, found))}]\n" for name, found in sorted(names.items())]
    lines.append("# Module streams of nvidia-driver.\nstreams:\n")
    for folder in sorted({row["folder"] for row in document("streams")}):
        found = sorted({row["stream"] for row in document("streams") if row["folder"] == folder})
        lines.append(f"  {folder}: [{', '.join(map(_quoted, found))}]\n")
    return "".join(lines)


def _quoted(text: str) -> str:
    return f'"{text}"'


if __name__ == "__main__":
    TABLE.write_text(table_text(), encoding="utf-8")
