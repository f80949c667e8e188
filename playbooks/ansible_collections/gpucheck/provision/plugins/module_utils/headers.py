"""Whether a host's package sources offer kernel headers."""

import contextlib
import os
import re
import shutil
import tempfile

from .readers.files import Unreadable, command


def apt_missing(names, options=()):
    """Names without a candidate in the lists that the options name."""
    offered = set()
    for block in re.split(r"(?m)^(?=\S+:$)", command(["apt-cache", *options, "policy", *names])):
        name, _, rest = block.partition(":\n")
        if re.search(r"^\s+Candidate: (?!\(none\))\S", rest, re.MULTILINE):
            offered.add(name)
    return [name for name in names if name not in offered]


@contextlib.contextmanager
def fresh_lists():
    """Options of apt for lists that are fetched now into a temporary folder. Raises Unreadable where a source fails."""
    folder = tempfile.mkdtemp(prefix="gpucheck-lists-")
    try:
        # apt fetches as a user of its own, which needs access.
        os.chmod(folder, 0o755)  # noqa: S103 - lists of packages are no secret
        os.makedirs(os.path.join(folder, "partial"))
        options = ["-o", "Dir::State::lists=" + folder, "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]
        command(["apt-get", *options, "-o", "APT::Update::Error-Mode=any", "-o", "APT::Sandbox::User=root", "update"])
        yield options
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def query_apt(names):
    """Query the host's lists, then fresh ones. Raises Unreadable if the sources do not respond."""
    if not apt_missing(names):
        return []
    with fresh_lists() as options:
        return apt_missing(names, options)


def query_dnf(names):
    """Query the enabled repositories. Raises Unreadable if they do not respond."""
    output = command(["dnf", "--quiet", "repoquery", "--queryformat", "%{name}\n", *names])
    offered = set(output.split())
    # kernel-devel-5.14.0-503.el9.x86_64 is queried by name and version, and returned by name.
    return [name for name in names if not any(name == seen or name.startswith(seen + "-") for seen in offered)]


def missing(names, package_manager):
    """Packages that no source offers; none if the sources do not respond."""
    try:
        return (query_apt if package_manager == "apt" else query_dnf)(names) if names else []
    except Unreadable:
        return []
