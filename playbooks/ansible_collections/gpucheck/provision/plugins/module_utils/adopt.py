"""Source files on a host that name a repository of the plan, such as those that NVIDIA's guide has a person write.

Two entries for one address with different keys stop apt altogether. A file that names planned repositories alone, with
their pinned keys, is replaced by the planned one, and given back when the plan no longer has it. Any other is for a
person to decide on.
"""

import configparser
import glob
import os
import re

from . import archive, package_repository
from .credentials import masked, public
from .readers.files import text

APT_MAIN = "/etc/apt/sources.list"
FINGERPRINT = re.compile(r"^[0-9A-F]{40}!?$", re.IGNORECASE)
DEB_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
SEPARATORS = re.compile(r"[\s,]+")


def normal(url):
    """An address as two that mean the same have it: variables filled in, no credentials, no last slash."""
    machine = os.uname().machine
    url = url.replace("$(ARCH)", DEB_ARCHITECTURES.get(machine, machine)).replace("$basearch", machine)
    return public(url).rstrip("/")


def yum_sections(content):
    """(address, keys) of each active section of a .repo file."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    try:
        parser.read_string(content)
    except configparser.Error:
        return
    for name in parser.sections():
        section = parser[name]
        for url in SEPARATORS.split(section.get("baseurl", "").strip()):
            if url and not archive.disabled(section):
                yield url, SEPARATORS.split(section.get("gpgkey", "").strip())


def entries(path):
    """(address, keys) of each active entry of a source file."""
    content = text(path) or ""
    if path.endswith(".repo"):
        return list(yum_sections(content))
    read = archive.deb822_sources if path.endswith(".sources") else archive.one_line_sources
    active = [fields for fields in read(content) if not archive.disabled(fields)]
    keys = [SEPARATORS.split(fields.get("signed-by", "")) for fields in active]
    return [(url, known) for fields, known in zip(active, keys) for url in fields.get("uris", "").split()]


def pinned(keys, repository):
    """Whether these keys are known to be the pinned ones, and no others."""
    pins = set(package_repository.pins(repository["key_fingerprint"]))
    for key in keys:
        if key == repository.get("key_url"):
            continue
        path = re.sub("^file://", "", key)
        stated = key.rstrip("!").upper() if FINGERPRINT.match(key) else None
        if stated not in pins if stated else not package_repository.file_pinned(path, pins):
            return False
    return any(keys)


def candidates(repositories):
    patterns = (
        [package_repository.APT_LISTS + "/*.list", package_repository.APT_LISTS + "/*.sources", APT_MAIN]
        if any(row["kind"] == "apt" for row in repositories)
        else [package_repository.YUM_REPOS + "/*.repo"]
    )
    managed = {package_repository.paths(row)[0] for row in repositories}
    return sorted({path for pattern in patterns for path in glob.glob(pattern)} - managed)


def found(repositories):
    """({path: address}, sentences): files that the planned ones replace, and those that are in their way."""
    planned = {normal(row["url"]): row for row in repositories}
    replaced, rivals = {}, []
    for path in candidates(repositories):
        seen = [(normal(url), keys) for url, keys in entries(path)]
        same = [url for url, _ in seen if url in planned]
        if not same:
            continue
        row = planned[same[0]]
        if path == APT_MAIN or set(same) != {url for url, _ in seen}:
            rivals.append("{} also names {}, in addition to other sources".format(path, masked(row["url"])))
        elif not all(pinned(keys, planned[url]) for url, keys in seen):
            rivals.append("{} also names {}, without the pinned key".format(path, masked(row["url"])))
        else:
            replaced[path] = same[0]
    return replaced, rivals


def differences(replaced):
    return [f"{path} names the same repository, and is replaced by the planned file" for path in sorted(replaced)]


def noted(plan, baseline):
    """Paths that were replaced for repositories that the plan still has. baseline: the record of before us."""
    planned = {normal(row["url"]) for row in plan["repositories"]}
    return sorted(path for path, url in baseline.get("adopted", {}).items() if url in planned)
