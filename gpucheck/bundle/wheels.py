"""The wheels that pip needs on a host, for the host's Python and C library, downloaded on this machine."""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from gpucheck.bundle.errors import BundleError
from gpucheck.bundle.programs import run

# The C libraries that uv can be told of; the newest that is not newer than the host's is taken.
KNOWN_GLIBC = (17, 28, *range(31, 41))
OLD_PLATFORMS = ("manylinux2014", "manylinux2010", "manylinux1", "linux")


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """A host's Python: ``3.11``, C library ``2.36``, ``x86_64``."""

    version: Annotated[str, msgspec.Meta(pattern=r"^3\.[0-9]{1,2}\Z")]
    glibc: Annotated[str, msgspec.Meta(pattern=r"^[0-9]\.[0-9]{1,2}\Z")]
    machine: Literal["x86_64", "aarch64"]


def download(requirements: str, python: Interpreter, pip_args: Sequence[str], folder: Path) -> None:
    """Put every wheel into the folder. requirements: as pip reads them; pip_args: as on the host (indexes, proxies).

    uv decides, because pip would judge environment markers by the Python that it runs on. Raises BundleError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpucheck-wheels-") as temporary:
        wanted, exact = Path(temporary, "requirements.in"), Path(temporary, "requirements.txt")
        wanted.write_text(requirements, encoding="utf-8")
        run(
            [*compile_words(python, pip_args), "--output-file", exact, wanted],
            what=f"choosing the wheels for Python {python.version}",
            environment=_index(),
        )
        words = [*download_words(python, pip_args), "--dest", folder, "--requirement", exact]
        run(words, what=f"downloading the wheels for Python {python.version}")


def compile_words(python: Interpreter, pip_args: Sequence[str]) -> list[str | Path]:
    """The command that turns requirements into exact versions for that host."""
    platform = f"{python.machine}-manylinux_2_{max(k for k in KNOWN_GLIBC if k <= max(_minor(python), KNOWN_GLIBC[0]))}"
    words = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--no-config"]
    words += ["--python-version", python.version, "--python-platform", platform, "--only-binary", ":all:"]
    # As pip does: the best version of all indexes, not of the first that has any.
    words += ["--index-strategy", "unsafe-best-match"]
    return [*words, *("--allow-insecure-host" if word == "--trusted-host" else word for word in pip_args)]


def download_words(python: Interpreter, pip_args: Sequence[str]) -> list[str | Path]:
    """The command that downloads exact versions for that host."""
    tag = f"cp{python.version.replace('.', '')}"
    platforms = [f"manylinux_2_{minor}_{python.machine}" for minor in range(_minor(python), 4, -1)]
    platforms += [f"{name}_{python.machine}" for name in OLD_PLATFORMS]
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    words += ["--only-binary", ":all:", "--python-version", python.version, "--implementation", "cp"]
    for abi in (tag, "abi3", "none"):
        words += ["--abi", abi]
    for platform in platforms:
        words += ["--platform", platform]
    return [*words, *pip_args]


def _minor(python: Interpreter) -> int:
    """36 of 2.36. Raises BundleError."""
    major, _, minor = python.glibc.partition(".")
    if major != "2" or not minor.isdigit():
        raise BundleError(f"C library {python.glibc!r}: not a glibc that wheels are published for")
    return int(minor)


def _index() -> dict[str, str]:
    """pip's own index for uv, which reads no pip.conf."""
    told = run([sys.executable, "-m", "pip", "config", "list"], what="reading pip's configuration").decode()
    lines = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
    names = {"UV_INDEX_URL": "index-url", "UV_EXTRA_INDEX_URL": "extra-index-url"}
    found = {}
    for variable, option in names.items():
        value = next((lines[key] for key in (f":env:.{option}", f"global.{option}") if key in lines), "")
        if value and variable not in os.environ:
            found[variable] = value.strip("'\"").replace("\\n", " ")
    return found
