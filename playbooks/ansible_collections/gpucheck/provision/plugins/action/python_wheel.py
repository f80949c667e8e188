"""Build this project's wheel once for each state of its sources."""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ansible.plugins.action import ActionBase

from ..plugin_utils.files import locked

ARGUMENTS = {
    name: {"type": "path" if name != "package" else "str", "required": True} for name in ("source", "package", "dest")
}
LOCK = "requirements.lock"
ROOT_FILES = ("pyproject.toml", "README.md", "LICENSE", LOCK)


def sources(source, package):
    """Paths of everything that goes into the wheel, relative to the project, ordered."""
    found = [name for name in ROOT_FILES if (source / name).is_file()]
    files = (path for path in sorted((source / package).rglob("*")) if path.is_file())
    found += [str(path.relative_to(source)) for path in files if path.parent.name != "__pycache__"]
    return [name for name in found if not name.endswith((".pyc", ".so"))]


def digest_of(source, names):
    digest = hashlib.sha256()
    for name in names:
        content = (source / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def build(source, names, folder):
    """Build in a copy: setuptools keeps a build directory, from which deleted modules would be packaged again."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch, "tree")
        for name in names:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, tree / name)
        # With the setuptools of this environment: an isolated build would fetch the newest one, and run it.
        argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
        # -m imports from the working directory first: a private one.
        done = subprocess.run(
            [*argv, "--wheel-dir", "out", str(tree)], cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if done.returncode:
            raise RuntimeError(done.stdout.decode("utf-8", "replace").strip())
        (wheel,) = Path(scratch, "out").glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        if LOCK in names:
            shutil.copy2(tree / LOCK, folder / LOCK)
        shutil.copy2(wheel, folder / ".partial")
        (folder / ".partial").rename(folder / wheel.name)


def wheel_of(source, package, dest):
    """{path, lock, digest, sha256, python_minimum} of these sources' wheel. Raises RuntimeError, OSError."""
    source, dest = Path(source).resolve(), Path(dest).resolve()
    names = sources(source, package)
    if "pyproject.toml" not in names:
        raise RuntimeError(f"{source} has no pyproject.toml, so it is not a Python project to build a wheel from")
    digest = digest_of(source, names)
    folder = dest / digest[:16]
    try:
        with locked(dest):
            if not list(folder.glob("*.whl")):
                build(source, names, folder)
    except (OSError, RuntimeError) as error:
        hint = "The build needs setuptools 77 or newer in the environment of ansible-playbook; make installs it."
        raise RuntimeError(f"the wheel of {source} cannot be built: {error}. {hint}") from error
    (wheel,) = folder.glob("*.whl")
    minimum = re.search(r'^requires-python = ">=([\d.]+)', (source / "pyproject.toml").read_text(), re.MULTILINE)
    return {
        "path": str(wheel),
        "lock": str(folder / LOCK),
        "digest": digest,
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "python_minimum": minimum.group(1) if minimum else "",
    }


class ActionModule(ActionBase):
    """Runs on the controller, touches no host."""

    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        try:
            return {**result, "changed": False, **wheel_of(**self.validate_argument_spec(ARGUMENTS)[1])}
        except (OSError, RuntimeError) as error:
            return {**result, "failed": True, "msg": str(error)}
