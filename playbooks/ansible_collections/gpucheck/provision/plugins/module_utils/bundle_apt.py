"""Collect packages with apt: its own resolver and checks, on lists, status and cache of our own below one folder.

Nothing of the host's own apt is touched.
"""

import os
import re
import shutil

from .bundle import DOWNLOAD_SECONDS, bring, collected, not_there, source_files, write
from .headers import apt_missing
from .readers.files import Unreadable, command, text

STATUS = "/var/lib/dpkg/status"
ETC = "/etc/apt"
# Desktops and container images refresh or empty caches of the host after every update of lists.
NO_HOOKS = """#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"""


def collect(folder, request, packages):
    """({packages: rows, not_offered: names, modules: []}) after the download. packages: {name: version} installed.

    Raises Unreadable with apt's own error message.
    """
    names = [spec.partition("=")[0] for spec in request["wanted"]]
    base = request["base"] == "host"
    drop = not_there(names + request["optional"], packages, "dpkg") if base else set()
    options = prepare(folder, request, status_without(drop) if base else "")
    command(["apt-get", *options, "-o", "APT::Update::Error-Mode=any", "--quiet", "update"], DOWNLOAD_SECONDS)
    left = apt_missing(request["optional"], options)
    optional = [name for name in request["optional"] if name not in left]
    arguments = ["--yes", "--quiet", "--download-only", "--allow-downgrades", "--allow-change-held-packages", "install"]
    command(["apt-get", *options, *arguments, *request["wanted"], *optional], DOWNLOAD_SECONDS)
    archives = os.path.join(folder, "packages")
    without_epochs(archives)
    rows = collected(archives, ".deb", described)
    metadata = bring(folder, signed_lists(os.path.join(folder, "lists"), {row["sha256"] for row in rows}))
    return {"packages": rows, "not_offered": left, "modules": [], "metadata": metadata}


def signed_lists(folder, digests):
    """For each source its release file, with its signature, and for each list that names a package the list."""
    groups, lists = {}, []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        found = re.search(r"(InRelease|Release|Release\.gpg)$", name)
        if found:
            groups.setdefault(name[: found.start()], {})[found.group(1)] = path
        elif name.endswith("Packages"):
            with open(path, encoding="utf-8", errors="replace") as file:
                if any(line.startswith("SHA256:") and line[7:].strip() in digests for line in file):
                    lists.append({"Packages": path})
    return [groups[name] for name in sorted(groups)] + lists


def prepare(folder, request, status):
    """Write sources, preferences and status below the folder; returns the options that make apt use them alone."""
    for name in ("lists/partial", "packages/partial", "cache", "sources", "preferences"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    write(folder, "status", status)
    write(folder, "sources.list", text(os.path.join(ETC, "sources.list")) or "")
    own = source_files(os.path.join(ETC, "sources.list.d"), (".list", ".sources"), request["repositories"])
    for name, content in own:
        write(folder, "sources/" + name, content)
    for repository in request["repositories"]:
        line = "deb [signed-by={}/keys/{name}.gpg] {url} {suite}\n".format(folder, **repository)
        write(folder, "sources/{name}.list".format(**repository), line)
    for name in os.listdir(os.path.join(ETC, "preferences.d")):
        shutil.copy(os.path.join(ETC, "preferences.d", name), os.path.join(folder, "preferences"))
    # The plan's pins, as they will be active when the packages are installed.
    for row in request["files"]:
        if row["path"].startswith(os.path.join(ETC, "preferences.d/")):
            write(folder, "preferences/" + os.path.basename(row["path"]), row["content"])
    places = {
        "Dir::Etc::sourcelist": "sources.list",
        "Dir::Etc::sourceparts": "sources",
        "Dir::Etc::preferencesparts": "preferences",
        "Dir::State": ".",
        "Dir::State::lists": "lists",
        "Dir::State::status": "status",
        "Dir::Cache": "cache",
        "Dir::Cache::archives": "packages",
    }
    # A file, because no option can clear a list.
    options = ["-c", write(folder, "no-hooks.conf", NO_HOOKS)]
    for option, place in sorted(places.items()):
        options += ["-o", "{}={}".format(option, os.path.join(folder, place))]
    return [
        *options,
        "-o",
        "APT::Sandbox::User=root",
        "-o",
        "APT::Install-Recommends=no",
        "-o",
        "Debug::NoLocking=1",
        "-o",
        "Acquire::GzipIndexes=false",
    ]


def status_without(names):
    """dpkg's status without these packages."""
    kept = []
    for stanza in re.split(r"\n\n+", (text(STATUS) or "").strip()):
        found = re.search(r"(?m)^Package: (\S+)$", stanza)
        if found and found.group(1) not in names:
            kept.append(stanza + "\n\n")
    return "".join(kept)


def without_epochs(folder):
    """apt writes an epoch into its file names as ``1%3a``; in the address of a repository that would be taken apart."""
    for name in os.listdir(folder):
        plain = re.sub(r"_\d+%3a", "_", name)
        if plain != name:
            os.rename(os.path.join(folder, name), os.path.join(folder, plain))


def described(path):
    """(name, version, architecture) of a .deb."""
    layout = "--showformat=${Package} ${Version} ${Architecture}"
    fields = command(["dpkg-deb", "--show", layout, path]).split()
    if len(fields) != 3:
        raise Unreadable("{} is not a package".format(path))
    return tuple(fields)
