#!/usr/bin/python
"""Keep a host's share of a bundle: what of it is missing, and what has arrived put in its place."""

DOCUMENTATION = r"""
module: bundle_folder
short_description: Keep a host's share of a bundle
description:
  - Returns which files of the bundle are missing in the directory. With C(arrived), first moves the files from there,
    each only if it has the digest of the signed manifest, and removes what is not part of the bundle.
  - Writes an apt.conf for APT_CONFIG, and a dnf in the directory bin, with which apt and dnf use only this directory.
options:
  folder:
    description: The host's folder.
    type: path
    required: true
  files:
    description: By path below the folder, the sha256 and bytes of every file.
    type: dict
    required: true
  arrived:
    description: A folder of arrived files, named by their paths with C(:) for C(/). Without it nothing changes.
    type: path
attributes:
  check_mode:
    description: Nothing is written in check mode.
    support: full
notes:
  - Why this module exists. M(ansible.builtin.copy) compares with the controller's files; here the signed manifest
    decides, for thousands of files at once.
author: gpucheck
"""

EXAMPLES = r"""
- name: Find missing bundle files
  gpucheck.provision.bundle_folder:
    folder: /var/lib/gpucheck/bundle
    files: {key.asc: {sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855, bytes: 0}}
  become: true
"""

RETURN = r"""
missing:
  description: Paths of files that are missing or different.
  returned: success
  type: list
  elements: str
missing_bytes:
  description: Their size.
  returned: success
  type: int
free_bytes:
  description: Bytes free where the folder is.
  returned: success
  type: int
"""

import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucheck.provision.plugins.module_utils.bundle import BUNDLE, sha256, write

APT_CONF = """// Written by make provision BUNDLE=...: APT_CONFIG names it, so that apt uses only the bundle.
Dir::Etc::sourcelist "/etc/apt/sources.list.d/{name}.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "{folder}/lists";
"""
DNF = """#!/bin/sh
# Written by make provision BUNDLE=...: first in the PATH, so that dnf uses only the bundle.
exec /usr/bin/dnf --setopt=reposdir={folder}/repos "$@"
"""


def missing(folder, files):
    """Paths of files that are not there as they should be, ordered."""
    return [path for path, row in sorted(files.items()) if not same(os.path.join(folder, path), row)]


def same(path, row):
    """Return whether a file has this digest; its size is compared first, digests of gigabytes are slow."""
    regular = os.path.isfile(path) and not os.path.islink(path)
    return regular and os.path.getsize(path) == row["bytes"] and sha256(path) == row["sha256"]


def take(folder, files, arrived):
    """Put what has arrived in its place and remove what does not belong there; True where something was done."""
    changed = False
    for path in missing(folder, files):
        staged, target = os.path.join(arrived, path.replace("/", ":")), os.path.join(folder, path)
        if not os.path.lexists(staged):
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        changed = accept(staged, target, files[path]) or changed
    for path in superfluous(folder, files):
        os.unlink(path)
        changed = True
    return changed


def accept(staged, target, row):
    """Move a file to its place if it is the one that was signed; True where it was.

    Moved before it is looked at: the login that brought it can exchange it as long as it lies where it arrived.
    """
    partial = target + ".partial"
    shutil.move(staged, partial)
    if not os.path.islink(partial):
        os.chown(partial, 0, 0)
        os.chmod(partial, 0o644)
        if same(partial, row):
            os.rename(partial, target)
            return True
    os.unlink(partial)
    return False


def superfluous(folder, files):
    """Files among packages and wheels that are not part of this bundle."""
    found = []
    for part in ("packages", "wheels"):
        for place, _, names in os.walk(os.path.join(folder, part)):
            found += [os.path.join(place, name) for name in names]
    return [path for path in found if os.path.relpath(path, folder) not in files]


def guides(folder):
    """Write what makes apt and dnf use this folder alone."""
    os.makedirs(os.path.join(folder, "lists/partial"), exist_ok=True)
    write(folder, "apt.conf", APT_CONF.format(folder=folder, name=BUNDLE))
    os.chmod(write(folder, "bin/dnf", DNF.format(folder=folder)), 0o755)  # noqa: S103 - a program for all
    link = os.path.join(folder, "repos", BUNDLE + ".repo")
    os.makedirs(os.path.dirname(link), exist_ok=True)
    if not os.path.islink(link):
        os.symlink("/etc/yum.repos.d/{}.repo".format(BUNDLE), link)


def main():
    """Move arrived files, find missing ones, return the result."""
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "files": {"type": "dict", "required": True},
            "arrived": {"type": "path"},
        },
        supports_check_mode=True,
    )
    folder, files, arrived = (module.params[name] for name in ("folder", "files", "arrived"))
    changed = False
    try:
        if arrived and not module.check_mode:
            changed = take(folder, files, arrived)
            guides(folder)
        lacking = missing(folder, files)
    except OSError as error:
        module.fail_json(
            msg="the bundle cannot be stored in {}: {}. Free space there, then run again.".format(folder, error)
        )
    near = folder
    while not os.path.isdir(near):
        near = os.path.dirname(near)
    space = os.statvfs(near)
    answer = {"missing": lacking, "missing_bytes": sum(files[path]["bytes"] for path in lacking)}
    module.exit_json(changed=changed, free_bytes=space.f_bavail * space.f_frsize, **answer)


if __name__ == "__main__":
    main()
