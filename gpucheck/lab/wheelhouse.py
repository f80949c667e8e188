"""The wheelhouse: gpucheck's own wheel and everything it needs, so that lab hosts install without a network."""

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gpucheck.lab.model import fingerprint
from gpucheck.lab.system import LabError, run, say
from gpucheck.processes.environment import python_module
from gpucheck.processes.temporary import temporary_folder

TORCH = "2.13.0"
CONSTRAINTS = "constraints.txt"
DISTRIBUTION = "gpucheck_cluster"  # as file names spell it
OWN_WHEEL = f"{DISTRIBUTION}-*.whl"
HINT = "check that pip reaches its package index (pip config list, pip download numpy); then run this again"


@dataclass(frozen=True)
class Wheelhouse:
    """What is in the wheelhouse. torch_version: of its wheel, ``2.13.0+cpu``."""

    folder: Path
    torch_version: str


def ensure_wheelhouse(root: Path, pythons: tuple[str, ...]) -> Wheelhouse:
    """Fill the wheelhouse for these Python versions (``3.11``); nothing is done when nothing has changed."""
    folder = root / ".cache/lab/wheelhouse"
    folder.mkdir(parents=True, exist_ok=True)
    wheel = own_wheel(root, folder)
    for python in pythons:
        dependencies(root, folder, wheel, python)
    found = sorted(folder.glob(f"torch-{TORCH}*.whl"))
    if not found:
        raise LabError(f"the wheelhouse {folder} holds no torch {TORCH}\ndo: rm -r {folder}, then run this again")
    return Wheelhouse(folder, torch_version([path.name for path in found]))


def torch_version(names: list[str]) -> str:
    """The version in torch's wheel name, with its local part; a CPU build wins over the full one."""
    versions = [re.sub(r"%2B", "+", name.split("-")[1], flags=re.IGNORECASE) for name in names]
    return next((version for version in versions if version.endswith("+cpu")), versions[0])


def own_wheel(root: Path, folder: Path) -> Path:
    """gpucheck's wheel, built again only when its sources have changed."""
    parts = [root / name for name in ("pyproject.toml", "gpucheck", "README.md", "LICENSE") if (root / name).exists()]
    stamp, stamp_file = fingerprint(parts), folder / "gpucheck.stamp"
    wheels = sorted(folder.glob(OWN_WHEEL))
    if len(wheels) == 1 and stamp_file.exists() and stamp_file.read_text() == stamp:
        return wheels[0]
    say("building gpucheck's wheel")
    with temporary_folder("wheel") as temporary:
        # A copy: building in the checkout would leave build/ and *.egg-info there.
        copy, out = Path(temporary, "source"), Path(temporary, "out")
        copy.mkdir()
        for part in parts:
            if part.is_dir():
                shutil.copytree(part, copy / part.name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(part, copy)
        run(
            pip("wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", out, copy),
            what="building gpucheck's wheel",
            hint=HINT,
        )
        (built,) = out.glob("*.whl")
        stamp_file.unlink(missing_ok=True)
        for old in wheels:
            old.unlink()
        # The hosts install over http while a rebuild may go on: the name must never show half a file.
        partial = folder / f".{built.name}"
        shutil.copy(built, partial)
        target = partial.rename(folder / built.name)
    stamp_file.write_text(stamp)
    return target


def dependencies(root: Path, folder: Path, wheel: Path, python: str) -> None:
    """Download everything that gpucheck and torch need for one Python version, drop what none needs any more."""
    constraints = root / CONSTRAINTS
    limits: list[str | Path] = ["--constraint", constraints] if constraints.exists() else []
    stamp = fingerprint([root / "pyproject.toml", TORCH, python, *([constraints] if limits else [])])
    stamp_file = folder / f"dependencies-{python}.stamp"
    if stamp_file.exists() and stamp_file.read_text().splitlines()[0] == stamp:
        return
    say(f"downloading Python packages for the lab hosts (torch {TORCH} and what gpucheck needs, Python {python})")
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as temporary:
        fresh = Path(temporary)
        download = pip("download", "--dest", fresh, "--only-binary=:all:", "--python-version", python)
        what = "filling the wheelhouse"
        # The CPU build if pip has its index: the full build brings 3 GB of CUDA libraries that no lab host can use.
        torch = f"torch=={TORCH}+cpu"
        try:
            run([*download, "--no-deps", torch], what=what)
        except LabError:
            say(f"pip finds no CPU build of torch {TORCH} here: taking the full one, about 3 GB")
            torch = f"torch=={TORCH}"
        # What an earlier download left is taken from there.
        near: list[str | Path] = ["--find-links", folder]
        run([*download, *near, *limits, f"{wheel}[torch]", torch, "pip", "setuptools"], what=what, hint=HINT)
        names = sorted(path.name for path in fresh.glob("*.whl") if not path.name.startswith(f"{DISTRIBUTION}-"))
        for name in names:
            (fresh / name).replace(folder / name)
    stamp_file.write_text("\n".join([stamp, *names]))
    wanted = {name for file in folder.glob("dependencies-*.stamp") for name in file.read_text().splitlines()[1:]}
    for path in folder.glob("*.whl"):
        if path.name not in wanted and not path.name.startswith(f"{DISTRIBUTION}-"):
            path.unlink()


def pip(command: str, *arguments: str | Path) -> list[str | Path]:
    return [*python_module("pip"), command, "--quiet", "--disable-pip-version-check", *arguments]
