"""The wheel and the source distribution."""

import sys
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from release.archives import tar_gz
from release.problem import ReleaseError, run

# Of wheels without a License-Expression: Jinja2 and nvidia-ml-py have the text with three clauses.
CLASSIFIED = {
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: MIT License": "MIT",
}


def wheel(source: Path, folder: Path, date: int) -> Path:
    """Build the wheel of a copy of the sources, with the setuptools of this environment. Raises ReleaseError."""
    words: list[str | Path] = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    words += ["--no-deps", "--no-index", "--no-build-isolation", "--no-cache-dir", "--wheel-dir", folder, source]
    run(words, what="building the wheel", environment={"SOURCE_DATE_EPOCH": str(date)})
    (made,) = folder.glob("gpucheck_cluster-*.whl")
    return made


def licenses(wheels: Iterable[Path]) -> str:
    """Return one SPDX expression for all wheels. Raises ReleaseError for a wheel that states none."""
    stated = {_license(wheel) for wheel in wheels}
    return " AND ".join(sorted(f"({one})" if " OR " in one else one for one in stated))


def _license(wheel: Path) -> str:
    fields = metadata(wheel)
    for stated in (fields["License-Expression"], *fields.get_all("Classifier", [])):
        if stated in CLASSIFIED or (stated and stated == fields["License-Expression"]):
            return CLASSIFIED.get(stated, stated)
    raise ReleaseError(f"{wheel.name}: states no license. Add its SPDX expression to release/python.py")


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
