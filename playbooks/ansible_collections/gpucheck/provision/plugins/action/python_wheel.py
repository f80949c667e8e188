"""Build this project's wheel once for each state of its sources."""

import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ansible.plugins.action import ActionBase

from ..plugin_utils.files import locked

ARGUMENTS = {
    name: {"type": "path" if name != "package" else "str", "required": True} for name in ("source", "package", "dest")
}
LOCK = "requirements.lock"
ROOT_FILES = ("pyproject.toml", "README.md", "LICENSE", LOCK)


def sources(source, package):
    """Relative paths of everything that goes into the wheel, ordered."""
    found = [name for name in ROOT_FILES if os.path.isfile(os.path.join(source, name))]
    for folder, folders, files in os.walk(os.path.join(source, package)):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        found += [os.path.relpath(os.path.join(folder, name), source) for name in sorted(files)]
    return [name for name in found if not name.endswith((".pyc", ".so"))]


def digest_of(source, names):
    """SHA-256 over names and contents."""
    digest = hashlib.sha256()
    for name in names:
        with open(os.path.join(source, name), "rb") as file:
            content = file.read()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def build(source, names, folder):
    """Build in a copy: setuptools keeps a build directory, from which deleted modules would be packaged again."""
    with tempfile.TemporaryDirectory() as scratch:
        tree, out = os.path.join(scratch, "tree"), os.path.join(scratch, "out")
        for name in names:
            target = os.path.join(tree, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy2(os.path.join(source, name), target)
        # With the setuptools of this environment: an isolated build would fetch the newest one, and run it.
        argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
        argv += ["--wheel-dir", out, tree]
        # -m imports from the working directory first: a private one.
        done = subprocess.run(argv, cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise RuntimeError(done.stdout.decode("utf-8", "replace").strip())
        os.makedirs(folder, exist_ok=True)
        if LOCK in names:
            shutil.copy2(os.path.join(tree, LOCK), os.path.join(folder, LOCK))
        for wheel in glob.glob(out + "/*.whl"):
            partial = os.path.join(folder, ".partial")
            shutil.copy2(wheel, partial)
            os.rename(partial, os.path.join(folder, os.path.basename(wheel)))


def python_minimum(wheel):
    """The oldest Python of the wheel's Requires-Python."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode("utf-8")
    found = re.search(r"^Requires-Python:.*>=\s*([0-9.]+)", metadata, re.MULTILINE)
    return found.group(1) if found else ""


def wheel_of(source, package, dest):
    """{path, lock, digest, sha256, python_minimum} of these sources' wheel. Raises RuntimeError, OSError."""
    source = os.path.abspath(source)
    names = sources(source, package)
    if "pyproject.toml" not in names:
        raise RuntimeError(f"{source} has no pyproject.toml, so it is not a Python project to build a wheel from")
    digest = digest_of(source, names)
    folder = os.path.join(os.path.abspath(dest), digest[:16])
    try:
        with locked(Path(dest)):
            if not glob.glob(folder + "/*.whl"):
                build(source, names, folder)
    except (OSError, RuntimeError) as error:
        hint = "The build needs setuptools 77 or newer in the environment of ansible-playbook; make installs it."
        raise RuntimeError(f"the wheel of {source} cannot be built: {error}. {hint}") from error
    (wheel,) = glob.glob(folder + "/*.whl")
    with open(wheel, "rb") as file:
        sha256 = hashlib.sha256(file.read()).hexdigest()
    found = {"path": wheel, "lock": os.path.join(folder, LOCK), "digest": digest, "sha256": sha256}
    return {**found, "python_minimum": python_minimum(wheel)}


class ActionModule(ActionBase):
    """Runs on the controller, touches no host."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        """Build unless these very sources were built before."""
        result = super().run(tmp, task_vars)
        try:
            return {**result, "changed": False, **wheel_of(**self.validate_argument_spec(ARGUMENTS)[1])}
        except (OSError, RuntimeError) as error:
            return {**result, "failed": True, "msg": str(error)}
