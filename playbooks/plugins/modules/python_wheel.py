#!/usr/bin/python
"""Build this project's wheel once for each state of its sources."""

DOCUMENTATION = r"""
module: python_wheel
short_description: Build a Python project's wheel once for each state of its sources
description:
  - Builds with the interpreter that runs the module, so run it on the controller with Ansible's own interpreter.
  - The wheel is kept in a folder named by the digest of the sources; the same sources are never built twice, and then
    need no network.
options:
  source:
    description: The project's folder, with its pyproject.toml.
    type: path
    required: true
  package:
    description: The package's folder below source.
    type: str
    required: true
  dest:
    description: Folder for the wheels.
    type: path
    required: true
attributes:
  check_mode:
    description: The wheel is built in check mode too, it changes no host.
    support: full
author: gpucheck
"""

EXAMPLES = r"""
- name: Build the wheel
  python_wheel:
    source: "{{ playbook_dir }}/.."
    package: gpucheck
    dest: "{{ playbook_dir }}/../build/wheels"
  delegate_to: localhost
"""

RETURN = r"""
path:
  description: The wheel.
  returned: success
  type: str
digest:
  description: SHA-256 of the sources it was built from.
  returned: success
  type: str
python_minimum:
  description: The oldest Python the project supports, from its own metadata; empty where it names none.
  returned: success
  type: str
"""

import glob  # noqa: E402
import hashlib  # noqa: E402
import os  # noqa: E402
import re  # noqa: E402
import shutil  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import zipfile  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402

BESIDE = ("pyproject.toml", "README.md", "LICENSE")


def sources(source, package):
    """Relative paths of everything that goes into the wheel, ordered."""
    found = [name for name in BESIDE if os.path.isfile(os.path.join(source, name))]
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
        digest.update("{}\0{}\0".format(name, len(content)).encode("utf-8"))
        digest.update(content)
    return digest.hexdigest()


def build(source, names, folder):
    """Build in a copy: setuptools leaves a build folder behind, from which deleted modules would come back."""
    with tempfile.TemporaryDirectory() as scratch:
        tree, out = os.path.join(scratch, "tree"), os.path.join(scratch, "out")
        for name in names:
            target = os.path.join(tree, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy2(os.path.join(source, name), target)
        argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out, tree]
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise RuntimeError(done.stdout.decode("utf-8", "replace").strip())
        os.makedirs(folder, exist_ok=True)
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


def main():
    """Build unless these very sources were built before."""
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "path", "required": True},
            "package": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    source = os.path.abspath(module.params["source"])
    names = sources(source, module.params["package"])
    if "pyproject.toml" not in names:
        module.fail_json(msg="{} holds no pyproject.toml: it is no Python project to build a wheel from".format(source))
    digest = digest_of(source, names)
    folder = os.path.join(os.path.abspath(module.params["dest"]), digest[:16])
    wheels = glob.glob(folder + "/*.whl")
    if not wheels:
        try:
            build(source, names, folder)
        except (OSError, RuntimeError) as error:
            module.fail_json(msg="the wheel of {} cannot be built: {}".format(source, error))
        wheels = glob.glob(folder + "/*.whl")
    module.exit_json(changed=False, path=wheels[0], digest=digest, python_minimum=python_minimum(wheels[0]))


if __name__ == "__main__":
    main()
