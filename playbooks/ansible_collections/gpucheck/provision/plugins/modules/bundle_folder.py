#!/usr/bin/python
"""Keep a host's share of a bundle: what of it is missing, and what has arrived put in its place."""

import contextlib
import errno
import hashlib
import os
import stat

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.bundle import BUNDLE, sha256, write

MADE = "made"
OLDER = (
    "the bundle was made {}, and this host has one that was made {}. An older bundle can install packages with "
    "known vulnerabilities. Use a newer bundle, or set bundle_accept_older: true to install this one."
)
PIECE_BYTES = 1 << 20
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
    return [path for path, row in sorted(files.items()) if not same(os.path.join(folder, path), row)]


def same(path, row):
    """Return whether a file has this digest; its size is compared first, digests of gigabytes are slow."""
    regular = os.path.isfile(path) and not os.path.islink(path)
    return regular and os.path.getsize(path) == row["bytes"] and sha256(path) == row["sha256"]


def take(folder, files, arrived):
    """Put what has arrived in its place and remove what does not belong there; True where something was done."""
    changed = False
    # By descriptor: the login that owns the folder could put a link in its place.
    place = os.open(arrived, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for path in missing(folder, files):
            target = os.path.join(folder, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            changed = accept(place, path.replace("/", ":"), target, files[path]) or changed
    finally:
        os.close(place)
    for path in superfluous(folder, files):
        os.unlink(path)
        changed = True
    return changed


def accept(place, name, target, row):
    """Copy an arrived file to its place if it is the one that was signed; True where it was. place: a descriptor.

    The digest is that of the bytes that are copied: the login that brought the file may still have it open.
    """
    try:
        # Neither a link nor a FIFO is followed or waited for.
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
            return False
        raise
    partial = target + ".partial"
    remove(partial)
    try:
        # Not as a file object yet: Python has none for a directory.
        if not stat.S_ISREG(os.fstat(source).st_mode):
            return False
        with open(source, "rb", closefd=False) as file, open(partial, "xb") as copy:
            if copied(file, copy, row["bytes"]) != row["sha256"]:
                return False
            os.fchmod(copy.fileno(), 0o644)
        os.rename(partial, target)
        return True
    finally:
        os.close(source)
        remove(partial)
        # Each needs its space twice for a moment only.
        remove(name, place)


def remove(name, place=None):
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(name, dir_fd=place)


def copied(file, copy, most):
    """Copy a file of exactly this size; the hex SHA-256 of what was copied, empty for another size."""
    digest, left = hashlib.sha256(), most
    while True:
        piece = file.read(min(PIECE_BYTES, left + 1))
        left -= len(piece)
        if left < 0 or not piece:
            return "" if left else digest.hexdigest()
        digest.update(piece)
        copy.write(piece)


def superfluous(folder, files):
    found = []
    for part in ("packages", "wheels"):
        for place, _, names in os.walk(os.path.join(folder, part)):
            found += [os.path.join(place, name) for name in names]
    return [path for path in found if os.path.relpath(path, folder) not in files]


def guides(folder):
    os.makedirs(os.path.join(folder, "lists/partial"), exist_ok=True)
    write(folder, "apt.conf", APT_CONF.format(folder=folder, name=BUNDLE))
    os.chmod(write(folder, "bin/dnf", DNF.format(folder=folder)), 0o755)  # noqa: S103 - a program for all
    link = os.path.join(folder, "repos", BUNDLE + ".repo")
    os.makedirs(os.path.dirname(link), exist_ok=True)
    if not os.path.islink(link):
        os.symlink(f"/etc/yum.repos.d/{BUNDLE}.repo", link)


def newer(folder, made):
    try:
        with open(os.path.join(folder, MADE)) as file:
            recorded = file.read(64)
    except FileNotFoundError:
        return ""
    return recorded if recorded > made else ""


def main():
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "files": {"type": "dict", "required": True},
            "arrived": {"type": "path"},
            "made": {"type": "str", "required": True},
            "accept_older": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    folder, files, arrived, made = (module.params[name] for name in ("folder", "files", "arrived", "made"))
    changed = False
    try:
        later = newer(folder, made)
        if later and not module.params["accept_older"]:
            module.fail_json(msg=OLDER.format(made, later))
        if arrived and not module.check_mode:
            changed = take(folder, files, arrived)
            guides(folder)
        lacking = missing(folder, files)
        if arrived and not module.check_mode and not lacking:
            write(folder, MADE, made)
    except OSError as error:
        module.fail_json(msg=f"the bundle cannot be stored in {folder}: {error}. Free space there, then run again.")
    near = folder
    while not os.path.isdir(near):
        near = os.path.dirname(near)
    space = os.statvfs(near)
    answer = {"missing": lacking, "missing_bytes": sum(files[path]["bytes"] for path in lacking)}
    module.exit_json(changed=changed, free_bytes=space.f_bavail * space.f_frsize, **answer)


if __name__ == "__main__":
    main()
