"""``python -m release.image_versions``: compare images/versions.yml with the stack resolver and the locks.

The exit status is 2 if they differ. --update makes the locks and fills the file and the table of the page.
"""

import argparse
import difflib
import re
import shutil
import sys
from itertools import takewhile
from pathlib import Path

import msgspec
import yaml

from gpucheck.images.build import index_options
from gpucheck.images.versions import (
    FILE,
    MACHINES,
    PAGE,
    Base,
    Filled,
    Variant,
    Versions,
    VersionsError,
    lock_path,
    read_versions,
    table,
)
from gpucheck.knowledge import tables
from gpucheck.lab.system import LabError, run, say
from gpucheck.processes.environment import python_module
from gpucheck.processes.temporary import temporary_folder
from gpucheck.stack import Refusal, UnknownInput, resolve
from gpucheck.stack.spec import StackSpec
from gpucheck.stack.stack_set import StackSet

TOP = Path(__file__).parents[1]
# No GPU limits a CPU build, but the resolver needs one: any GPU that every driver branch supports.
ANY_GPU = "Tesla T4"
# Library -> the wheels with it: those of CUDA 13 have no suffix for their CUDA major if the name is unique.
CARRIERS = {
    "cuda": ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    "cudnn": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
}
# A requirement as uv writes it: ``torch==2.13.0+cpu ; marker \``.
LOCKED = re.compile(r"^([\w.-]+)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)


def read_lock(path: Path) -> dict[str, str]:
    """Return distribution -> exact version; empty without a lock."""
    return dict(LOCKED.findall(path.read_text(encoding="utf-8"))) if path.exists() else {}


def fill(versions: Versions, root: Path) -> Versions:
    """Return the rows with current values of resolver and locks. Raises VersionsError naming a row without a set."""
    filled = {name: fill_one(name, row, versions.base.os or "", root) for name, row in versions.variants.items()}
    return msgspec.structs.replace(versions, variants=filled)


def fill_one(name: str, row: Variant, os: str, root: Path) -> Variant:
    spec = msgspec.convert({row.framework: row.spec.version}, StackSpec)
    try:
        answer = resolve(row.spec.gpus or (ANY_GPU,), os, "x86_64", spec)
    except UnknownInput as error:
        raise VersionsError(f"{FILE}: {name}: {error}") from error
    if isinstance(answer, Refusal):
        conflict = answer.conflicts[0]
        raise VersionsError(f"{FILE}: {name}: no set exists: {conflict.because}. Try: {conflict.try_}")
    locked = read_lock(lock_path(root, name))
    filled = _torch(answer) if row.framework == "torch" else _tensorflow(answer, cpu=not row.spec.gpus)
    if filled is None:
        because = f"the resolver found no {row.framework} for these GPUs"
        raise VersionsError(f"{FILE}: {name}: {because}. Details: gpucheck stack resolve")
    changes = {}
    for part, wheels in CARRIERS.items() if filled.cuda else ():
        if version := next((locked[wheel] for wheel in wheels if wheel in locked), None):
            changes[part] = ".".join(version.split(".")[:2]) if part == "cuda" else version
    return msgspec.structs.replace(row, filled=msgspec.structs.replace(filled, **changes))


def _torch(answer: StackSet) -> Filled | None:
    choice = answer.torch
    if choice is None:
        return None
    release = next(r for r in tables.torch().releases if r.version == choice.version)
    build = next((b for b in release.builds if b.build == choice.build), None)
    # The tables have PyPI's aarch64 wheels; PyTorch's index has CPU builds for aarch64 too.
    arm = choice.build in (release.aarch64.build, "cpu")
    minor = ".".join(choice.cuda.split(".")[:2]) if choice.cuda else None
    return Filled(
        version=choice.version,
        build=choice.build,
        index="pypi" if choice.origin == "pypi" else choice.build,
        python=choice.python,
        platforms=("linux/amd64", "linux/arm64") if arm else ("linux/amd64",),
        built_for=minor,
        cuda=minor,
        cudnn=choice.cudnn,
        nccl=choice.nccl,
        driver_floor=build.min_driver if build else None,
        code=tuple(f"sm_{arch}" for arch in build.archs or ()) if build else (),
    )


def _tensorflow(answer: StackSet, *, cpu: bool) -> Filled | None:
    choice = answer.tensorflow
    if choice is None:
        return None
    release = next(r for r in tables.tensorflow().releases if r.version == choice.version)
    minor = ".".join((release.cuda or "").split(".")[:2])
    # On x86-64 the wheels are two, tensorflow and tensorflow-cpu; on Arm tensorflow's own wheel is CPU only.
    return Filled(
        version=choice.version,
        build="cpu" if cpu else "cuda",
        index="pypi",
        python=choice.python,
        platforms=("linux/amd64", "linux/arm64") if cpu else ("linux/amd64",),
        built_for=None if cpu else minor,
        cuda=None if cpu else minor,
        driver_floor=None if cpu else release.min_driver,
        code=() if cpu else release.archs or (),
        constraints=() if cpu else choice.constraints,
    )


def to_text(versions: Versions, old: str) -> str:
    """Return the file's text: the leading comment of the old text, then every value that is not None."""
    comment = "".join(takewhile(lambda line: line.startswith("#"), old.splitlines(keepends=True)))
    plain = msgspec.to_builtins(versions)
    parts = [plain["base"], plain["stand_in"]]
    for row in plain["variants"].values():
        parts += [row, row["spec"], row["filled"]]
    for part in parts:
        for key in [key for key, value in part.items() if value is None or value in ([], ())]:
            del part[key]
    return comment + yaml.safe_dump(plain, sort_keys=False, width=120, allow_unicode=True)


TOOLS = "cyclonedx-bom"
# torch's wheel lists numpy as optional, but training data needs it.
ADDITIONAL = {"torch": ("numpy",), "tensorflow": ()}
# The substitute base has this version, the pinned base a newer one.
OLDEST_PYTHON = "3.11"
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
    """Make every lock again. places: options of the package index. What cannot be made or checked is reported."""
    compile_lock([TOOLS], [], root, lock_path(root, "tools"), places, project=False)
    for name, row in versions.variants.items():
        try:
            # PyTorch's index also has old versions of other packages, so the best match of all indexes is used.
            best = ["--index-strategy", "unsafe-best-match"] if row.filled.index != "pypi" else []
            target = lock_path(root, name)
            compile_lock(requirements(row), constraints(root, row), root, target, [*best, *places])
            check_lock(name, row, target, versions.base, places)
        except LabError as error:  # noqa: PERF203 - one index out of reach stops no other lock
            say(f"the lock of {name} is not complete\n{error.message}")


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
        words += ["--constraint", held, "--universal", "--python-version", OLDEST_PYTHON]
        words += ["--no-header", "--no-annotate", "--generate-hashes"]
        run([*words, *options, "--output-file", made], what=f"locking {target.stem}", hint=HINT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(made, target)


def check_lock(name: str, row: Variant, lock: Path, base: Base, options: list[str]) -> None:
    """Resolve a lock to wheels for each platform of its row without downloading them. Raises LabError with uv's output.

    Every requirement must have a wheel there, for Python and glibc of the base, whose hash is in the lock.
    """
    glibc = next(system.glibc for system in tables.operating_systems().systems if system.id == base.os)
    for place in row.filled.platforms:
        platform = f"{MACHINES[place.removeprefix('linux/')]}-manylinux_{glibc.replace('.', '_')}"
        with temporary_folder("lock") as folder:
            words: list[str | Path] = [*python_module("uv"), "pip", "install", "--quiet", "--no-config", "--dry-run"]
            words += ["--target", folder, "--no-deps", "--only-binary", ":all:", "--require-hashes"]
            words += ["--python-version", base.python, "--python-platform", platform]
            run([*words, *options, "--requirement", lock], what=f"resolving the lock of {name} for {place}", hint=HINT)


BEGIN, END = "<!-- variants: made by `python -m release.image_versions --update` -->", "<!-- end of variants -->"


def fill_page(text: str, versions: Versions) -> str:
    """Return the page with its table generated again. Raises ValueError if the page lacks the marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no lines {BEGIN!r} and {END!r}. Put them around the table.")
    return f"{before}{BEGIN}\n\n{table(versions)}\n{END}{after}"


def main(words: list[str] | None = None) -> int:
    """Print what differs, or update it."""
    parser = argparse.ArgumentParser(prog="python -m release.image_versions", description=__doc__)
    parser.add_argument("--update", action="store_true", help="make the locks, and fill the file and the page")
    parser.add_argument("--index", action="append", default=[], metavar="URL", help="an additional package index")
    parser.add_argument("--find-links", action="append", default=[], metavar="DIR|URL", help="a directory of wheels")
    options = parser.parse_args(words)
    versions = read_versions(TOP)
    if options.update:
        make_locks(fill(versions, TOP), TOP, index_options(tuple(options.index), tuple(options.find_links)))
    versions = fill(versions, TOP)  # what the image carries is read from the locks
    old = (TOP / FILE).read_text(encoding="utf-8")
    new = to_text(versions, old)
    if options.update:
        (TOP / FILE).write_text(new, encoding="utf-8")
        (TOP / PAGE).write_text(fill_page((TOP / PAGE).read_text(encoding="utf-8"), versions), encoding="utf-8")
        return 0
    changed = difflib.unified_diff(old.splitlines(), new.splitlines(), FILE, "resolver and locks", n=0, lineterm="")
    print("\n".join(changed) or f"{FILE} is in step with the resolver and the locks")
    return 0 if old == new else 2


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LabError, VersionsError) as error:
        sys.exit(str(error))
