"""Query a host's package sources, before anything changes: for planned packages, and for kernel headers."""

import contextlib
import os
import re
import shutil
import tempfile

from . import host_plan, kept
from .readers.files import Unreadable, command

SHOWN = 3
# Every stream's packages, whatever is enabled, and none hidden by a version lock.
DNF = ["dnf", "--quiet", "--disableplugin=versionlock"]
LAYOUT = "%{name} %{epoch}:%{version}-%{release}\n"


def needed(plan, packages, components):
    """Rows of these components' packages that are not installed in their version."""
    rows = [row for part in components for row in host_plan.component(plan, part)[0]]
    return [row for row in rows if row["name"] not in packages or row["version"] not in (None, packages[row["name"]])]


def apt_offers(names, options=()):
    """{name: versions, newest first} by apt's lists. Raises Unreadable."""
    found = {}
    for line in command(["apt-cache", *options, "madison", *names]).splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) == 3 and not parts[2].endswith("Sources"):
            versions = found.setdefault(parts[0], [])
            if parts[1] not in versions:
                versions.append(parts[1])
    return found


def dnf_offers(names):
    """{name: versions} by the enabled repositories, epoch 0 left out as in a plan. Raises Unreadable."""
    query = [*DNF, "--setopt=*.module_hotfixes=1", "repoquery", "--available", "--queryformat", LAYOUT, *names]
    found = {}
    for line in command(query).splitlines():
        name, _, version = line.strip().partition(" ")
        if version:
            found.setdefault(name, []).insert(0, host_plan.normal_epoch(version))
    return found


def lacking(rows, offers):
    found = []
    for row in rows:
        versions = offers.get(row["name"], [])
        if not versions or row["version"] not in (None, *versions):
            near = "offered: {}".format(", ".join(versions[:SHOWN])) if versions else "no version is offered"
            found.append("{} ({})".format(row["spec"], near))
    return found


def stream_lacking(plan):
    """The planned module stream, where no repository has it. Raises Unreadable."""
    stream = plan["module_stream"]
    if not stream or host_plan.enabled_stream(stream["module"]) == stream["stream"]:
        return []
    pattern = r"(?m)^{}\s+{}(\s|$)".format(re.escape(stream["module"]), re.escape(stream["stream"]))
    try:
        output = command([*DNF, "module", "list", stream["module"]])
    except Unreadable as error:
        if "No matching Modules" not in str(error):
            raise
        output = ""
    return [] if re.search(pattern, output) else ["module stream {module}:{stream}".format(**stream)]


def query_missing(plan, packages, components):
    """(missing, unknown): sentences on what no source offers; why that could not be found out, "" where it could."""
    there = kept.of_plan(plan)
    rows = [row for row in needed(plan, packages, components) if not kept.path_for(row, there)]
    names = sorted({row["name"] for row in rows})
    try:
        streams = stream_lacking(plan) if rows and plan["package_manager"] == "dnf" else []
        return streams + looked_up(plan["package_manager"], names, lambda offers: lacking(rows, offers)), ""
    except Unreadable as error:
        return [], str(error)


def looked_up(package_manager, names, lack):
    """What ``lack`` misses in {name: versions} of the sources; on apt in fresh lists, if the host's own lack it.

    Raises Unreadable if the sources do not respond.
    """
    if not names:
        return []
    if package_manager == "dnf":
        return lack(dnf_offers(names))
    found = lack(apt_offers(names))
    if found:
        with fresh_lists() as options:
            found = lack(apt_offers(names, options))
    return found


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


def missing(names, package_manager):
    """Packages that no source offers; none if the sources do not respond."""
    try:
        return looked_up(package_manager, names, lambda offers: unknown(names, offers))
    except Unreadable:
        return []


def unknown(names, offers):
    """Names that are not offered. kernel-devel-5.14.0-503.el9.x86_64 is asked for by version, and returned by name."""
    known = [(seen, version) for seen in offers if seen.startswith("kernel-") for version in offers[seen]]
    released = tuple(f"{seen}-{version}." for seen, version in known)
    return [name for name in names if name not in offers and not name.startswith(released)]
