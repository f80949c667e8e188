"""Platforms of an image: only those with wheels of exactly its build, and without emulation."""

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from gpucheck.images.versions import Variant, Versions
from gpucheck.knowledge import tables
from gpucheck.lab.system import LabError, run
from gpucheck.processes.python import python_module
from gpucheck.processes.temporary import temporary_folder

if TYPE_CHECKING:
    from docker import DockerClient

# Docker's name of an architecture -> the kernel's, as wheels are tagged.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def require_platform(client: "DockerClient", versions: Versions, name: str) -> None:
    """Raise LabError if the engine's architecture has no wheels of this build, or is not that of this host."""
    here = next((arch for arch, machine in MACHINES.items() if machine == platform.machine()), platform.machine())
    engine = str(client.version().get("Arch") or here)
    row = versions.variant(name)
    if f"linux/{engine}" not in row.filled.platforms:
        others = [other for other, one in versions.variants.items() if f"linux/{engine}" in one.filled.platforms]
        raise LabError(
            f"{name} cannot be built for linux/{engine}: {why_not(row, engine)}\n"
            f"do: build it on {' or '.join(p.removeprefix('linux/') for p in row.filled.platforms)}, or build here one "
            f"of: {', '.join(others) or 'none'}"
        )
    if engine != here:
        raise LabError(
            f"the Docker engine is linux/{engine} and this host linux/{here}, whose pip downloads its own wheels\n"
            f"do: build on a host that is {engine}, or with the context: gpucheck image context {name}"
        )


def why_not(row: Variant, arch: str) -> str:
    """Return which wheel is missing for an architecture, as text."""
    filled = row.filled
    machine = MACHINES.get(arch, arch)
    if row.framework == "tensorflow":
        return f"the {machine} wheel of TensorFlow on PyPI is CPU only"
    release = next((r for r in tables.torch().releases if r.version == filled.version), None)
    if machine == "aarch64" and filled.index == "pypi" and release is not None and release.aarch64.build == "cpu":
        return f"the aarch64 wheel of torch {filled.version} on PyPI is CPU only (CUDA for aarch64 begins with 2.11.0)"
    return f"no {machine} wheel of torch {filled.version}+{filled.build} is known"


def check_lock(name: str, row: Variant, lock: Path, python: str, glibc: str, options: list[str]) -> None:
    """Resolve a lock to wheels for each platform of its row without downloading them. Raises LabError with uv's output.

    python, glibc: of the base. Every requirement must have a wheel there whose hash is in the lock.
    """
    for place in row.filled.platforms:
        machine = MACHINES[place.removeprefix("linux/")]
        with temporary_folder("lock") as folder:
            words: list[str | Path] = [*python_module("uv"), "pip", "install", "--quiet", "--no-config", "--dry-run"]
            words += ["--target", folder, "--no-deps", "--only-binary", ":all:", "--require-hashes"]
            words += ["--python-version", python, "--python-platform", f"{machine}-manylinux_{glibc.replace('.', '_')}"]
            run(
                [*words, *options, "--requirement", lock],
                what=f"resolving the lock of {name} for {place}",
                hint=f"name the index with wheels for {place} with --index URL, or a directory with --find-links DIR",
            )
