"""The wheels and the source distribution; the README as a package index shows it, where relative links lead nowhere."""

import re
import sys
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from release.problem import ReleaseError, run
from release.source import tar_gz

LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?!https?:|#|mailto:)(?P<path>[^)]+)\)")
IMAGE = re.compile(r'<img src="(?!https?:)(?P<path>[^"]+)"[^>]*>\n?')
URL = re.compile(r"https://[\w.-]+(:\d+)?(/[\w.-]+)+")
# Of wheels without a License-Expression: Jinja2 and nvidia-ml-py have the text with three clauses.
CLASSIFIED = {
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: MIT License": "MIT",
}


def wheel(source: Path, platform: str, folder: Path, date: int) -> Path:
    """Build the wheel of a copy of the sources, with the setuptools of this environment. Raises ReleaseError.

    platform: ``manylinux_2_28_x86_64`` or the like, or any.
    """
    words: list[str | Path] = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    words += ["--no-deps", "--no-index", "--no-build-isolation", "--no-cache-dir", "--wheel-dir", folder, source]
    words += [f"--config-settings=--build-option=--plat-name={platform}"] if platform != "any" else []
    run(words, what="building the wheel", environment={"SOURCE_DATE_EPOCH": str(date)})
    (made,) = folder.glob(f"gpucheck_cluster-*-{platform}.whl")
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


def make_portable(source: Path, url: str, version: str) -> None:
    """Change README.md and pyproject.toml of a copy of the sources. url: of the repository, or empty.

    Raises ReleaseError for a url that is none.
    """
    if url and not URL.fullmatch(url):
        raise ReleaseError(f"URL={url}: not the address of a repository. Example: https://github.com/owner/gpucheck")
    readme = source / "README.md"
    readme.write_text(portable(readme.read_text(encoding="utf-8"), url, version), encoding="utf-8")
    if url:
        rows = {"Repository": url, "Issues": f"{url}/issues"}
        rows |= {"Documentation": f"{url}/blob/v{version}/docs/README.md"}
        rows |= {"Changelog": f"{url}/blob/v{version}/CHANGELOG.md"}
        with (source / "pyproject.toml").open("a", encoding="utf-8") as project:
            project.write("\n[project.urls]\n" + "".join(f'{name} = "{to}"\n' for name, to in rows.items()))


def portable(text: str, url: str, version: str) -> str:
    """Return a text whose links lead to the tag of the release; without a url they name the file in the sources."""
    if url:
        text = IMAGE.sub(lambda found: found[0].replace(found["path"], f"{url}/raw/v{version}/{found['path']}"), text)
        return LINK.sub(lambda found: f"[{found['text']}]({url}/blob/v{version}/{found['path']})", text)

    def named(found: re.Match[str]) -> str:
        path = f"`{found['path'].partition('#')[0]}`"
        return path if found["text"] == found["path"] else f"{found['text']} ({path})"

    return LINK.sub(named, IMAGE.sub("", text))
