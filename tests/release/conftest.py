"""Two releases of the files as they are here, and the wheels that their wheel needs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from release import source
from release.vendored import this_python, wheels
from tests.shared import made_once

TOP = Path(__file__).parents[2]
PYTHON = this_python()
MACHINE = os.uname().machine
DATE = "1800000000"
URL = "https://example.org/owner/gpucheck"


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def own(folder: Path, machine: str = MACHINE) -> Path:
    """The wheel of a release for a machine."""
    return only(folder, f"*_{machine}.whl")


def built(top: Path, umask: int, surroundings: dict[str, str]) -> Path:
    source.copy(TOP, source.tracked(TOP), top / "checkout")
    words: list[str | Path] = [sys.executable, "-m", "release"]
    words += [top / "out", "--machine", MACHINE, "--python", PYTHON, "--url", URL]
    environment = {**os.environ, **surroundings, "SOURCE_DATE_EPOCH": DATE}
    done = subprocess.run(
        words,
        cwd=top / "checkout",
        env=environment,
        capture_output=True,
        text=True,
        umask=umask,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return top / "out"


@pytest.fixture(scope="session")
def release(tmp_path_factory):
    """The files of a release; GPUCHECK_RELEASE names a folder that has them already."""
    if "GPUCHECK_RELEASE" in os.environ:
        return Path(os.environ["GPUCHECK_RELEASE"]).absolute()
    surroundings = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"}
    return made_once(tmp_path_factory, "release", lambda top: built(top, 0o022, surroundings)) / "out"


@pytest.fixture(scope="session")
def again(tmp_path_factory):
    """The same files in another directory, time zone, language and umask."""
    surroundings = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "2"}
    return made_once(tmp_path_factory, "another-place", lambda top: built(top, 0o077, surroundings)) / "out"


@pytest.fixture(scope="session")
def dependencies(release, tmp_path_factory):
    """A folder with the wheels that gpucheck needs, for an installation without a network."""
    lock = (TOP / "requirements.lock").read_text()
    return made_once(tmp_path_factory, "wheels", lambda folder: wheels(own(release), lock, PYTHON, MACHINE, folder))
