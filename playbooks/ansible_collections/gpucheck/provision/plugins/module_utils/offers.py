"""Query a host's package sources for the packages that a plan installs, before anything changes."""

import re

from . import headers, host_plan, kept
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
    """A sentence for each row that is not offered, with versions that are."""
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
        if not rows:
            return [], ""
        if plan["package_manager"] == "dnf":
            return stream_lacking(plan) + lacking(rows, dnf_offers(names)), ""
        missing = lacking(rows, apt_offers(names))
        if missing:
            with headers.fresh_lists() as options:
                missing = lacking(rows, apt_offers(names, options))
        return missing, ""
    except Unreadable as error:
        return [], str(error)
