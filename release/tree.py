"""The files of the .deb and the .rpm: gpucheck and its dependencies, for every Python that a host may have.

``/usr/lib/gpucheck-cluster/pythonX.Y`` is a virtual environment that uses the Python of the host. Processes started by
gpucheck import from it, other programs do not; packages of the host's Python, such as torch, are visible in it.
``common`` holds the wheels that are the same for each Python, so that they are stored once.
"""

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

from release.problem import ReleaseError

HOME = "usr/lib/gpucheck-cluster"
LAUNCHER = """#!/bin/sh
# gpucheck with the newest Python of this host that it was packaged for.
here=$(dirname "$(readlink -f "$0")")
for python in $(ls -d "$here"/../lib/gpucheck-cluster/python3.* | sort -t. -k2 -r -V); do
    if [ -x "$python/bin/python" ]; then
        exec "$python/bin/python" "$here/../lib/gpucheck-cluster/start.py" "$@"
    fi
done
echo "Error: gpucheck needs /usr/bin/python3.10 or newer (up to @NEWEST@), and this host has none of them." \\
    "Install one: apt install python3, or dnf install python3.12" >&2
exit 70
"""
# Not python -m gpucheck: that imports from the current directory first, which may be another user's.
START = "from gpucheck.cli import main\n\nmain()\n"
COMPILE = """for python in /{home}/python3.*; do
    if [ -x "$python/bin/python" ]; then
        "$python/bin/python" -m compileall -q "$python/lib" /{home}/common || true
    fi
done
"""
FORGET = "find /{home} -name __pycache__ -type d -prune -exec rm -rf {{}} + 2>/dev/null || true\n"
AFTER_INSTALL = COMPILE.format(home=HOME)
BEFORE_REMOVAL = FORGET.format(home=HOME)


def fill(root: Path, wheels: Mapping[str, list[Path]], texts: Mapping[str, bytes], date: int) -> None:
    """Write the tree below root. wheels: by version of Python. texts: completion scripts, by their path."""
    home = root / HOME
    shared = set.intersection(*({path.name for path in found} for found in wheels.values()))
    unpacked: set[str] = set()
    for python, found in wheels.items():
        environment = home / f"python{python}"
        site = environment / f"lib/python{python}/site-packages"
        site.mkdir(parents=True)
        (environment / "bin").mkdir()
        (environment / "bin/python").symlink_to(f"/usr/bin/python{python}")
        (environment / "pyvenv.cfg").write_text(
            f"home = /usr/bin\ninclude-system-site-packages = true\nversion = {python}\n"
        )
        (site / "common.pth").write_text("../../../../common\n")
        for wheel in found:
            if wheel.name not in shared:
                unpack(wheel, site)
            elif wheel.name not in unpacked:
                unpack(wheel, home / "common")
                unpacked.add(wheel.name)
    (home / "start.py").write_text(START)
    launcher = root / "usr/bin/gpucheck"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(LAUNCHER.replace("@NEWEST@", max(wheels, key=lambda version: int(version.partition(".")[2]))))
    launcher.chmod(0o755)
    for name, content in texts.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    settle(root, date)


def unpack(wheel: Path, site: Path) -> None:
    """Unpack a wheel into site-packages. Raises ReleaseError for one with files for another place."""
    with zipfile.ZipFile(wheel) as archive:
        elsewhere = [name for name in archive.namelist() if ".data/" in name.partition("/")[0] + "/"]
        if elsewhere:
            raise ReleaseError(f"{wheel.name}: holds {elsewhere[0]}, which does not belong in site-packages")
        archive.extractall(site)


def settle(root: Path, date: int) -> None:
    """One date, and permissions that depend on no umask."""
    for path in (*root.rglob("*"), root):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent == root / "usr/bin" else 0o644)
        os.utime(path, (date, date), follow_symlinks=False)
