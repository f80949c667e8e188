"""Fill images/versions.yml from the stack resolver and from the locks, and report outdated values."""

import re
from pathlib import Path

import msgspec
import yaml
from packaging.requirements import Requirement

from gpucheck.images.versions import FILE, Filled, Variant, Versions, VersionsError, check_lock
from gpucheck.knowledge import tables
from gpucheck.lab.system import LabError, run, say
from gpucheck.processes.python import python_module
from gpucheck.processes.temporary import temporary_folder
from gpucheck.stack import Refusal, UnknownInput, resolve
from gpucheck.stack.spec import StackSpec
from gpucheck.stack.stack_set import StackSet

KNOWN_WHEELS = "images/known-wheels.txt"
LINE = re.compile(r"([0-9a-f]{64})  (\S+\.whl)")


def known_wheels(root: Path) -> dict[str, str]:
    """Return wheel -> sha256 of the checkout's list; empty without a list. Raises VersionsError with file and line."""
    path = root / KNOWN_WHEELS
    if not path.exists():
        return {}
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        if match is None:
            raise VersionsError(
                f"{path}:{number}: {line[:80]!r} is not an sha256sum line: 64 hex digits, two spaces, a wheel's name. "
                "Correct or remove it."
            )
        found[match[2]] = match[1]
    return found


def wheels_of(known: dict[str, str], name: str, version: str) -> dict[str, str]:
    return {
        wheel: digest for wheel, digest in known.items() if wheel.split("-")[:2] == [name.replace("-", "_"), version]
    }


def add_known(lock: str, known: dict[str, str]) -> str:
    """Return the lock's text with the known hashes added to those of uv, without duplicates, sorted as uv does."""
    blocks = re.split(r"\n(?=\S)", lock.rstrip("\n"))
    return "\n".join(_with_hashes(block, known) for block in blocks) + "\n" if lock.strip() else lock


def _with_hashes(block: str, known: dict[str, str]) -> str:
    requirement, *hashes = (line.rstrip("\\").strip() for line in block.splitlines())
    name, _, version = requirement.partition(";")[0].partition("==")
    more = {f"--hash=sha256:{digest}" for digest in wheels_of(known, name.strip(), version.strip()).values()}
    if not more - set(hashes):
        return block
    return " \\\n    ".join([requirement, *sorted({*hashes, *more})])


def without_hash(lock: str) -> list[str]:
    """Return requirements of a lock without a hash: pip would accept any file of that name."""
    blocks = re.split(r"\n(?=\S)", lock.strip("\n"))
    return [block.partition(" ")[0].strip() for block in blocks if "==" in block and "--hash=sha256:" not in block]


LOCKS = "images/locks"
# No GPU limits a CPU build, but the resolver needs one: any GPU that every driver branch supports.
ANY_GPU = "Tesla T4"
# Library -> the wheels with it: those of CUDA 13 have no suffix for their CUDA major if the name is unique.
CARRIERS = {
    "cuda": ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    "cudnn": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
}


def lock_path(root: Path, name: str) -> Path:
    """Return the path of a variant's exact requirements."""
    return root / LOCKS / f"{name}.txt"


def read_lock(path: Path) -> dict[str, str]:
    """Return distribution -> exact version; empty without a lock. Raises VersionsError for inexact requirements."""
    found = {}
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        words = line.partition("--hash")[0].strip()
        if not words or words.startswith("#"):
            continue
        requirement = Requirement(words)
        specifiers = list(requirement.specifier)
        if len(specifiers) != 1 or specifiers[0].operator != "==":
            raise VersionsError(f"{path}: {words!r} is not exact. Make it again: gpucheck image versions --update")
        found[requirement.name] = specifiers[0].version
    return found


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
    if row.framework == "torch":
        filled = _torch(name, answer, known_wheels(root))
    else:
        filled = _tensorflow(name, answer, cpu=not row.spec.gpus)
    carried = filled.cuda is not None
    found = {part: next((locked[w] for w in CARRIERS[part] if w in locked), None) for part in CARRIERS if carried}
    if found.get("cuda"):
        found["cuda"] = ".".join(str(found["cuda"]).split(".")[:2])
    changes = {part: value for part, value in found.items() if value}
    return msgspec.structs.replace(row, filled=msgspec.structs.replace(filled, **changes))


def _torch(name: str, answer: StackSet, known: dict[str, str]) -> Filled:
    choice = answer.torch
    if choice is None:
        raise VersionsError(
            f"{FILE}: {name}: the resolver found no torch for these GPUs. Details: gpucheck stack resolve"
        )
    release = next(r for r in tables.torch().releases if r.version == choice.version)
    build = next((b for b in release.builds if b.build == choice.build), None)
    # The tables have PyPI's aarch64 wheels, and those of PyTorch's index with a known hash.
    local = wheels_of(known, "torch", f"{choice.version}+{choice.build}")
    arm = release.aarch64.build == choice.build or any(wheel.endswith("_aarch64.whl") for wheel in local)
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


def _tensorflow(name: str, answer: StackSet, *, cpu: bool) -> Filled:
    choice = answer.tensorflow
    if choice is None:
        raise VersionsError(
            f"{FILE}: {name}: the resolver found no TensorFlow for these GPUs. Details: gpucheck stack resolve"
        )
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


def out_of_step(versions: Versions, root: Path) -> list[str]:
    """Return each value that differs from the resolver or the lock, as ``variant: key: file has X, lock has Y``."""
    wanted = fill(versions, root)
    found = []
    for name, row in versions.variants.items():
        fresh = wanted.variants[name].filled
        for key in Filled.__struct_fields__:
            has, want = getattr(row.filled, key), getattr(fresh, key)
            if has != want:
                found.append(f"{name}: {key}: {FILE} has {_words(has)}, the resolver and the lock have {_words(want)}")
    return found


def _words(value: object) -> str:
    return (
        " ".join(map(str, value)) or "nothing"
        if isinstance(value, tuple)
        else "nothing"
        if value is None
        else str(value)
    )


def to_text(versions: Versions, old: str) -> str:
    """Return the file's text: the leading comment of the old text, then every value that is not None."""
    comment = "".join(line for line in old.splitlines(keepends=True)[: _comment_lines(old)])
    plain = msgspec.to_builtins(versions)
    parts = [plain["base"], plain["stand_in"]]
    for row in plain["variants"].values():
        parts += [row, row["spec"], row["filled"]]
    for part in parts:
        for key in [key for key, value in part.items() if value is None or value in ([], ())]:
            del part[key]
    return comment + yaml.safe_dump(plain, sort_keys=False, width=120, allow_unicode=True)


def _comment_lines(text: str) -> int:
    lines = text.splitlines()
    return next((index for index, line in enumerate(lines) if not line.startswith("#")), len(lines))


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
        run([*words, *options, "--output-file", made], what=f"locking {target.stem}", hint=HINT)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = add_known(made.read_text(encoding="utf-8"), known_wheels(root))
        if bare := without_hash(text):
            raise LabError(f"locking {target.stem}: no index gave a hash for {', '.join(bare)}\ndo: {HASH_HINT}")
        target.write_text(text, encoding="utf-8")
