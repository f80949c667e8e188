"""The README as a package index shows it, where relative links lead nowhere; and the addresses in the metadata."""

import re
from pathlib import Path

from release.problem import ReleaseError

LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?!https?:|#|mailto:)(?P<path>[^)]+)\)")
IMAGE = re.compile(r'<img src="(?!https?:)(?P<path>[^"]+)"[^>]*>\n?')
URL = re.compile(r"https://[\w.-]+(:\d+)?(/[\w.-]+)+")


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
