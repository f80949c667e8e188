"""The wheels that pip needs on a host, for the host's Python and C library, downloaded on this machine."""

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from gpucheck.bundle.contents import PIP_LOCK, BundleError
from gpucheck.bundle.folder import described
from gpucheck.bundle.signing import run
from gpucheck.processes.environment import python_module

# The C libraries that uv distinguishes; the newest that is not newer than the host's is used.
KNOWN_GLIBC = (17, 28, *range(31, 41))
OWN = re.compile(r"@ file://(?P<path>/\S+\.whl) --hash=sha256:(?P<sha256>[0-9a-f]{64})")
# Each CUDA build of torch needs its own version of these. gpucheck works with any: pip replaces the locked one.
TORCH_CHOOSES = ("cuda-bindings", "cuda-pathfinder")
OLD_PLATFORMS = ("manylinux2014", "manylinux2010", "manylinux1", "linux")


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """A host's Python: ``3.11``, C library ``2.36`` (of which wheels need only the minor), ``x86_64``."""

    version: Annotated[str, msgspec.Meta(pattern=r"^3\.[0-9]{1,2}\Z")]
    glibc: Annotated[str, msgspec.Meta(pattern=r"^2\.[0-9]{1,2}\Z")]
    machine: Literal["x86_64", "aarch64"]

    @property
    def glibc_minor(self) -> int:
        return int(self.glibc.partition(".")[2])


def download(requirements: str, torch: str, python: Interpreter, pip_args: Sequence[str], folder: Path) -> Path:
    """Put every wheel into the directory; the lock that the hashes came from. Raises BundleError.

    requirements: gpucheck's wheel by its path and hash, the lock lies next to it. torch: empty for none; uv chooses
    what it needs besides, as pip would evaluate environment markers for the Python that it runs on.
    pip_args: as on the host (indexes, proxies).
    """
    from packaging.utils import canonicalize_name

    own = OWN.search(requirements)
    if own is None:
        raise BundleError(f"{requirements!r}: contains no wheel with its hash. Run make bundle again.")
    wheel, lock = Path(own["path"]), Path(own["path"]).parent / PIP_LOCK
    folder.mkdir(parents=True, exist_ok=True)
    if described(wheel).sha256 != own["sha256"]:
        raise BundleError(f"{wheel}: differs from the wheel that was built. Run make bundle again.")
    shutil.copy(wheel, folder)
    locked = fitting(lock.read_text(encoding="utf-8"), python)
    with tempfile.TemporaryDirectory(prefix="gpucheck-wheels-") as temporary:
        names = ("locked.txt", "in.txt", "held.txt", "chosen.txt")
        exact, wanted, held, chosen = (Path(temporary, name) for name in names)
        exact.write_text("\n".join(locked.values()) + "\n", encoding="utf-8")
        words = [*download_words(python, pip_args), "--require-hashes", "--dest", folder, "--requirement", exact]
        run(words, what=f"downloading the locked wheels for Python {python.version}")
        if torch:
            wanted.write_text(torch + "\n", encoding="utf-8")
            fixed = [row.partition(" ")[0] for name, row in locked.items() if name not in TORCH_CHOOSES]
            held.write_text("\n".join(fixed) + "\n", encoding="utf-8")
            words = [*compile_words(python, pip_args), "--constraint", held, "--output-file", chosen, wanted]
            run(words, what=f"choosing the wheels of torch for Python {python.version}", environment=_index())
            there = locked.keys() - set(TORCH_CHOOSES)
            rows = chosen.read_text(encoding="utf-8").splitlines(keepends=True)
            rows = [row for row in rows if canonicalize_name(row.partition("==")[0]) not in there]
            chosen.write_text("".join(rows), encoding="utf-8")
            words = [*download_words(python, pip_args), "--dest", folder, "--requirement", chosen]
            run(words, what=f"downloading the wheels of torch for Python {python.version}")
    return lock


def fitting(lock: str, python: Interpreter) -> dict[str, str]:
    """name -> ``name==version --hash=...`` for the rows of a lock whose markers fit the host's Python."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    full = f"{python.version}.0"
    environment = {"python_version": python.version, "python_full_version": full, "implementation_version": full}
    environment |= {"implementation_name": "cpython", "platform_python_implementation": "CPython", "os_name": "posix"}
    environment |= {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": python.machine}
    found: dict[str, str] = {}
    for row in lock.replace("\\\n", " ").splitlines():
        if not row.strip() or row.startswith("#"):
            continue
        words, *hashes = row.split("--hash=")
        one = Requirement(words)
        if one.marker is None or one.marker.evaluate(environment):
            exact = f"{one.name}{one.specifier}"
            found[canonicalize_name(one.name)] = " ".join([exact, *(f"--hash={digest.strip()}" for digest in hashes)])
    return found


def compile_words(python: Interpreter, pip_args: Sequence[str]) -> list[str | Path]:
    """The command that turns requirements into exact versions for that host."""
    newest = max(minor for minor in KNOWN_GLIBC if minor <= max(python.glibc_minor, KNOWN_GLIBC[0]))
    platform = f"{python.machine}-manylinux_2_{newest}"
    words = [*python_module("uv"), "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--no-config"]
    words += ["--python-version", python.version, "--python-platform", platform, "--only-binary", ":all:"]
    # As pip does: the best version of all indexes, not of the first that has any.
    words += ["--index-strategy", "unsafe-best-match"]
    return [*words, *("--allow-insecure-host" if word == "--trusted-host" else word for word in pip_args)]


def download_words(python: Interpreter, pip_args: Sequence[str]) -> list[str | Path]:
    """The command that downloads exact versions for that host."""
    tag = f"cp{python.version.replace('.', '')}"
    platforms = [f"manylinux_2_{minor}_{python.machine}" for minor in range(python.glibc_minor, 4, -1)]
    platforms += [f"{name}_{python.machine}" for name in OLD_PLATFORMS]
    words = [*python_module("pip"), "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    words += ["--only-binary", ":all:", "--python-version", python.version, "--implementation", "cp"]
    pairs = (*(("--abi", abi) for abi in (tag, "abi3", "none")), *(("--platform", one) for one in platforms))
    return [*words, *chain.from_iterable(pairs), *pip_args]


def _index() -> dict[str, str]:
    """pip's own index for uv, which reads no pip.conf."""
    output = run([*python_module("pip"), "config", "list"], what="reading pip's configuration").decode()
    lines = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    names = {"UV_INDEX_URL": "index-url", "UV_EXTRA_INDEX_URL": "extra-index-url"}
    found = {}
    for variable, option in names.items():
        value = next((lines[key] for key in (f":env:.{option}", f"global.{option}") if key in lines), "")
        if value and variable not in os.environ:
            found[variable] = value.strip("'\"").replace("\\n", " ")
    return found
