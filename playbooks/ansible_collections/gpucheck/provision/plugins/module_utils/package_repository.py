"""Package repositories of a plan against a host's files."""

import os
import re

from .credentials import APT_AUTH, SECRET_MODE, auth_line, login, public
from .openpgp import LARGEST_KEY_BYTES, NotAKey, digest, fingerprints, read_key
from .readers.files import text

APT_LISTS = "/etc/apt/sources.list.d"
YUM_REPOS = "/etc/yum.repos.d"
RPM_KEYS = "/etc/pki/rpm-gpg"


def planned(plan):
    """Every repository that a host may get by the plan: with the one of DKMS, see dkms."""
    dkms = (plan.get("dkms_source") or {}).get("repository")
    return plan["repositories"] + ([dkms] if dkms else [])


def paths(repository):
    """(source file, key file) of a repository."""
    if repository["kind"] == "apt":
        return os.path.join(APT_LISTS, repository["name"] + ".list"), repository["keyring"]
    name = repository["name"]
    return os.path.join(YUM_REPOS, name + ".repo"), os.path.join(RPM_KEYS, "RPM-GPG-KEY-" + name)


def auth_file(repository):
    """The path of apt's file for the credentials of this address, None where it has none."""
    if repository["kind"] != "apt" or login(repository["url"]) is None:
        return None
    return os.path.join(APT_AUTH, "gpucheck-" + repository["name"] + ".conf")


def all_paths(repository):
    auth = auth_file(repository)
    return [*paths(repository), *([auth] if auth else [])]


def rows(repository):
    """(path, content, mode) of every file that names the source: credentials are root's alone."""
    source, auth = paths(repository)[0], auth_file(repository)
    mode = SECRET_MODE if repository["kind"] == "dnf" and login(repository["url"]) else 0o644
    # The credentials first: the server rejects a source without them.
    found = [(auth, auth_line(repository["url"]), SECRET_MODE)] if auth else []
    return [*found, (source, source_text(repository), mode)]


def source_line(repository):
    return "deb [signed-by={}] {} {}\n".format(repository["keyring"], public(repository["url"]), repository["suite"])


def yum_file(repository):
    """The settings that the .repo file must hold; at least one of packages and metadata is always checked."""
    found = login(repository["url"])
    return {
        "baseurl": public(repository["url"]),
        **(dict(zip(("username", "password"), found)) if found else {}),
        "gpgcheck": "0" if repository["signed"] == "metadata" else "1",
        "repo_gpgcheck": "0" if repository["signed"] == "packages" else "1",
        "enabled": "1",
        "gpgkey": "file://" + paths(repository)[1],
        **({"includepkgs": " ".join(repository["include"])} if repository.get("include") else {}),
        **({"excludepkgs": repository["exclude"]} if repository.get("exclude") else {}),
    }


def source_text(repository):
    """What the source file holds, as the package manager reads it."""
    if repository["kind"] == "apt":
        return source_line(repository)
    settings = dict(yum_file(repository), name=repository["name"])
    lines = [f"{name} = {settings[name]}" for name in sorted(settings)]
    return "\n".join(["[{}]".format(repository["name"]), *lines, "", ""])


def pins(stated):
    """Pinned fingerprints or digests, ``EB69 3B30 ..., 610C...``: in capitals, without spaces; [] for none."""
    return [part for part in re.sub(r"\s", "", stated or "").upper().split(",") if part]


def key_as_planned(repository):
    return file_pinned(paths(repository)[1], pins(repository["key_fingerprint"]))


def file_pinned(path, allowed):
    """True if a file holds keys, and each of them is pinned: by its fingerprint, or all by the digest of the file."""
    present = key_fingerprints(path)
    return bool(present) and (set(present) <= set(allowed) or digest(read(path)) in allowed)


def read(path):
    """The start of a file, longer than any key file."""
    with open(path, "rb") as file:
        return file.read(LARGEST_KEY_BYTES + 1)


def differences(plan, keys):
    """A message for each repository whose source or key is not as planned. keys: fingerprints that rpm trusts."""
    words = []
    for repository in plan["repositories"]:
        name, (source, key_file) = repository["name"], paths(repository)
        present, wanted = key_fingerprints(key_file), pins(repository["key_fingerprint"])
        if not present:
            words.append(f"{name}: its key {key_file} is missing")
        elif not file_pinned(key_file, wanted):
            words.append(f"{name}: {key_file} holds key {', '.join(present)}, planned {', '.join(wanted) or 'none'}")
        elif repository["kind"] == "dnf" and not set(present) <= set(keys):
            words.append(f"{name}: its key is not imported into rpm")
        if not source_as_planned(repository, source):
            words.append(f"{name}: {source} is missing or different")
    return words


def key_fingerprints(path):
    """Fingerprints of all keys in a file, [] if it is missing or not a key file."""
    try:
        return fingerprints(read_key(read(path)))
    except (OSError, NotAKey):
        return []


def source_as_planned(repository, path):
    content = text(path)
    if content is None:
        return False
    auth = auth_file(repository)
    if auth and (text(auth) != auth_line(repository["url"]).strip() or not private(auth)):
        return False
    if repository["kind"] == "apt":
        return content == source_line(repository).strip()
    if login(repository["url"]) and not private(path):
        return False
    seen = dict((part.strip() for part in line.split("=", 1)) for line in content.splitlines() if "=" in line)
    return all(seen.get(key) == value for key, value in yum_file(repository).items())


def private(path):
    return not os.stat(path).st_mode & 0o077
