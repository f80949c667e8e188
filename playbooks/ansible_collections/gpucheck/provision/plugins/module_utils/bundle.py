"""What both package managers share when they collect a bundle: whose packages count as there, and what was collected.

Everything is written below one folder.
"""

import hashlib
import os
import platform
import re
import shutil

from . import host_plan, place, record, signing_keys
from .package_repository import pins
from .readers.files import Unreadable, command

DOWNLOAD_SECONDS = 3600
# Sources that provisioning writes: the plan names its own ones, and another bundle is no source of a bundle.
BUNDLE = "gpucheck-bundle"


def not_there(wanted, packages, family):
    """Names that have to count as not installed, so that they are collected although this host has them.

    Packages installed by gpucheck, requested ones, and all that need one of those: their relations would break.
    """
    needs, provides = record.relations(family)
    needed_by = {}
    for name, words in needs.items():
        for word in words:
            for provider in provides.get(word, ()):
                needed_by.setdefault(provider, set()).add(name)
    roots = record.added(packages, host_plan.recorded_plan()) | (set(wanted) & set(packages))
    return record.closure(roots, lambda name: needed_by.get(name, ()))


def source_files(folder, patterns, repositories):
    """(name, content) of the host's own source files, without those that provisioning writes."""
    managed = {repository["name"] for repository in repositories} | {BUNDLE}
    found = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        stem, ending = os.path.splitext(name)
        if ending in patterns and stem not in managed:
            with open(os.path.join(folder, name), "rb") as file:
                found.append((name, file.read().decode("utf-8", "replace")))
    return found


def fetch_keys(module, folder, repositories):
    """Put the pinned signing keys into the folder keys; the task fails if there is any other. Raises OSError."""
    for row in repositories:
        binary, armored = signing_keys.pinned(module, row["key_url"], pins(row["key_fingerprint"] or ""))
        apt = row["kind"] == "apt"
        path = os.path.join(folder, "keys", "{}.{}".format(row["name"], "gpg" if apt else "asc"))
        place.put(module, path, binary if apt else armored)


def write(folder, name, content):
    """A text file below the folder; returns its path."""
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)
    return path


def collected(folder, ending, describe):
    """{name, version, arch, file, sha256, bytes} of every package file. describe: (name, version, arch) of a path."""
    found = []
    for file in sorted(os.listdir(folder)):
        path = os.path.join(folder, file)
        if file.endswith(ending) and os.path.isfile(path):
            name, version, arch = describe(path)
            os.chmod(path, 0o644)
            row = {"name": name, "version": version, "arch": arch, "file": file}
            found.append(dict(row, sha256=sha256(path), bytes=os.path.getsize(path)))
    return found


def bring(folder, groups):
    """Copies of the sources' signed lists in the folder metadata; their paths, relative to folder.

    groups: for each source {ending of the copy: the list's own path}; a signature goes with what it signs by its name.
    """
    found = ["keys/" + name for name in sorted(os.listdir(os.path.join(folder, "keys")))] if groups else []
    os.makedirs(os.path.join(folder, "metadata"), exist_ok=True)
    for number, group in enumerate(groups):
        for ending, path in sorted(group.items()):
            name = "metadata/{:04d}.{}".format(number, ending)
            shutil.copyfile(path, os.path.join(folder, name))
            os.chmod(os.path.join(folder, name), 0o644)
            found.append(name)
    return found


def sha256(path):
    """Hex SHA-256 of a file, read in pieces: a CUDA package is larger than a host's spare memory may be."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def interpreter(name):
    """{version, glibc, machine} of the Python that gpucheck will run on, "3.11" and "2.36".

    One that is not installed yet is identified by its name. Raises Unreadable.
    """
    code = "import sys; print('{}.{}'.format(*sys.version_info))"
    try:
        version = command([name, "-c", code]).strip()
    except Unreadable:
        match = re.search(r"(\d+\.\d+)$", name)
        if match is None:
            raise Unreadable("{} is not installed, and its name does not contain its version".format(name))
        version = match.group(1)
    glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[-1]
    return {"version": version, "glibc": glibc, "machine": platform.machine()}
