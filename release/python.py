"""The wheel and the source distribution."""

import sys
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from release.archives import tar_gz
from release.problem import run


def wheel(source: Path, folder: Path, date: int) -> Path:
    """Build the wheel of a copy of the sources, with the setuptools of this environment. Raises ReleaseError."""
    words: list[str | Path] = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    words += ["--no-deps", "--no-index", "--no-build-isolation", "--no-cache-dir", "--wheel-dir", folder, source]
    run(words, what="building the wheel", environment={"SOURCE_DATE_EPOCH": str(date)})
    (made,) = folder.glob("gpucheck_cluster-*.whl")
    return made


def metadata(wheel: Path) -> Message:
    """METADATA of a wheel: Name, Version, License-Expression, Requires-Dist and more."""
    return HeaderParser().parsestr(metadata_text(wheel))


def metadata_text(wheel: Path) -> str:
    """METADATA of a wheel as it is."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA") and name.count("/") == 1]
        return archive.read(name).decode()


def sdist(source: Path, names: list[str], wheel: Path, folder: Path, date: int) -> Path:
    """Everything that git tracks, tests and documentation included, with the metadata of the wheel as PKG-INFO."""
    stem = "-".join(wheel.name.split("-")[:2])
    entries: list[tuple[str, Path | bytes]] = [(f"{stem}/{name}", source / name) for name in names]
    entries.append((f"{stem}/PKG-INFO", metadata_text(wheel).encode()))
    made = folder / f"{stem}.tar.gz"
    made.write_bytes(tar_gz(sorted(entries, key=lambda entry: entry[0]), date))
    return made
