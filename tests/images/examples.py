"""What a docs page shows, taken from the page, and a folder of wheels that stands in for a package index."""

import os
import re
import subprocess
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def fenced(page, word):
    """The one indented block of a page that holds a word."""
    blocks = re.findall(r"(?:^ {4}.*\n(?:^\s*\n(?=^ {4}))?)+", (ROOT / page).read_text(), flags=re.MULTILINE)
    (found,) = [block for block in blocks if word in block]
    return re.sub(r"^ {4}", "", found, flags=re.MULTILINE)


def wheel(folder, name, files, requires=()):
    """A wheel of text files. requires: its requirements."""
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n" + "".join(
        f"Requires-Dist: {r}\n" for r in requires
    )
    content = {
        **files,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    content[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"])
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)


def build(folder, dockerfile, tag, **arguments):
    """Build a Dockerfile with no package index but the folder ``wheels``: exit status and output."""
    text = re.sub(
        r"^(FROM .*)$", r"\1\nCOPY wheels /wheels\nENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels", dockerfile, flags=re.M
    )
    (folder / "Dockerfile").write_text(text)
    words = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
    return subprocess.run(
        ["docker", "build", "--network", "none", "--force-rm", "--tag", tag, *words, folder],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
    )


def remove(tag):
    """Remove what was built."""
    subprocess.run(["docker", "rmi", "--force", tag], capture_output=True, check=False)
