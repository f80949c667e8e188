"""Locks of the images: every Python package at one exact version, with its hashes."""

import re
from pathlib import Path

from gpucheck.images.fill import KNOWN_WHEELS, add_known, known_wheels, lock_path, without_hash
from gpucheck.images.platforms import check_lock
from gpucheck.images.versions import Variant, Versions
from gpucheck.knowledge import tables
from gpucheck.lab.system import LabError, run, say
from gpucheck.processes.python import python_module
from gpucheck.processes.temporary import temporary_folder

TOOLS = "cyclonedx-bom"
# torch's wheel lists numpy as optional, but training data needs it.
ADDITIONAL = {"torch": ("numpy",), "tensorflow": ()}
# The substitute base has this version, the pinned base a newer one.
OLDEST_PYTHON = "3.11"
HASH_HINT = f"add the wheel's sha256 to {KNOWN_WHEELS}, or name an index that states hashes"
HINT = "name the index that has the wheels with --index URL, or a directory of them with --find-links DIR"


def requirements(row: Variant) -> list[str]:
    """Return the requirements of a variant, in addition to those of gpucheck."""
    filled = row.filled
    extra = "[and-cuda]" if filled.build == "cuda" else ""
    local = "" if filled.index == "pypi" else f"+{filled.build}"
    if row.framework == "tensorflow" and filled.build == "cpu":
        # A third of the size on x86-64; on Arm this wheel does not exist and the other one is CPU only.
        names = {"tensorflow-cpu": "==", "tensorflow": "!="}
        return [f"{name}=={filled.version}; platform_machine {sign} 'x86_64'" for name, sign in names.items()]
    return [f"{row.framework}{extra}=={filled.version}{local}", *ADDITIONAL[row.framework], *filled.constraints]


def constraints(root: Path, row: Variant) -> list[str]:
    """Return the versions that are tested together, without those that this image states itself."""
    own = (f"{row.framework}==", *(re.split(r"[<>=!~ ]", one)[0] + "==" for one in row.filled.constraints))
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith(own)]


def make_locks(versions: Versions, root: Path, places: list[str]) -> None:
    """Make every lock again. places: options of the package index. A lock that cannot be made is reported and kept."""
    compile_lock([TOOLS], [], root, lock_path(root, "tools"), places, project=False)
    glibc = next(system.glibc for system in tables.operating_systems().systems if system.id == versions.base.os)
    for name, row in versions.variants.items():
        target = lock_path(root, name)
        try:
            # PyTorch's index also has old versions of other packages, so the best match of all indexes is used.
            best = ["--index-strategy", "unsafe-best-match"] if row.filled.index != "pypi" else []
            compile_lock(requirements(row), constraints(root, row), root, target, [*best, *places])
        except LabError as error:
            state = "is unchanged" if target.exists() else "was not made: it cannot be built here"
            say(f"the lock of {name} {state}\n{error.message}")
            continue
        try:
            check_lock(name, row, target, versions.base.python, glibc, places)
        except LabError as error:
            say(f"the lock of {name} was made, but not all of its wheels are reachable\n{error.message}")


def compile_lock(
    wanted: list[str], limits: list[str], root: Path, target: Path, options: list[str], *, project: bool = True
) -> None:
    """Resolve with uv for the Pythons of both bases, on every platform. Raises LabError with uv's output."""
    with temporary_folder("lock") as folder:
        requested, held, made = (Path(folder, name) for name in ("requested.in", "held.txt", "made.txt"))
        requested.write_text("\n".join(wanted) + "\n", encoding="utf-8")
        held.write_text("\n".join(limits) + "\n", encoding="utf-8")
        sources = [root / "pyproject.toml", requested] if project else [requested]
        words: list[str | Path] = [*python_module("uv"), "pip", "compile", "--quiet", "--no-config", *sources]
        words += [
            "--constraint",
            held,
            "--universal",
            "--python-version",
            OLDEST_PYTHON,
            "--no-header",
            "--no-annotate",
            "--generate-hashes",
        ]
        run(
            [*words, *options, "--output-file", made],
            what=f"locking {target.stem}",
            hint=HINT,
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        text = add_known(made.read_text(encoding="utf-8"), known_wheels(root))
        if bare := without_hash(text):
            raise LabError(f"locking {target.stem}: no index gave a hash for {', '.join(bare)}\ndo: {HASH_HINT}")
        target.write_text(text, encoding="utf-8")
