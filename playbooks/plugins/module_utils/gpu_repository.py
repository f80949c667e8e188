"""Package repositories of a plan against a host's files. Standard library only, Python 3.6 or newer."""

import glob
import os
import re

from ansible.module_utils.gpu_credentials import APT_AUTH, SECRET_MODE, auth_line, login, masked, public
from ansible.module_utils.gpu_host import text
from ansible.module_utils.openpgp import NotAKey, fingerprint, read_key

APT_LISTS = "/etc/apt/sources.list.d"
YUM_REPOS = "/etc/yum.repos.d"
RPM_KEYS = "/etc/pki/rpm-gpg"


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
    """Every file of a repository."""
    auth = auth_file(repository)
    return [*paths(repository), *([auth] if auth else [])]


def rows(repository):
    """(path, content, mode) of every file that names the source: credentials are root's alone."""
    source, auth = paths(repository)[0], auth_file(repository)
    mode = SECRET_MODE if repository["kind"] == "dnf" and login(repository["url"]) else 0o644
    # The credentials first: a source without them is refused by its server.
    found = [(auth, auth_line(repository["url"]), SECRET_MODE)] if auth else []
    return [*found, (source, source_text(repository), mode)]


def source_line(repository):
    """The one-line apt source, signed by its own key and no other; credentials are in a file of their own."""
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
    }


def source_text(repository):
    """What the source file holds, as the package manager reads it."""
    if repository["kind"] == "apt":
        return source_line(repository)
    settings = dict(yum_file(repository), name=repository["name"])
    lines = ["{} = {}".format(name, settings[name]) for name in sorted(settings)]
    return "\n".join(["[{}]".format(repository["name"]), *lines, "", ""])


def pin(repository):
    """The pinned fingerprint in capitals and without spaces, "" where nothing is pinned."""
    return (repository["key_fingerprint"] or "").replace(" ", "").upper()


def key_as_planned(repository):
    """True where the key file holds the pinned key; without a pin, where it holds one."""
    seen = key_fingerprint(paths(repository)[1])
    return seen is not None and seen == (pin(repository) or seen)


def differences(plan, keys):
    """Words for every repository whose source or key is not as planned. keys: imported rpm keys, eight hex digits."""
    words = []
    for repository in plan["repositories"]:
        source, key_file = paths(repository)
        seen, wanted = key_fingerprint(key_file), pin(repository)
        if seen is None:
            words.append("{}: its key {} is missing".format(repository["name"], key_file))
        elif wanted and seen != wanted:
            words.append("{}: {} holds key {}, planned {}".format(repository["name"], key_file, seen, wanted))
        elif repository["kind"] == "dnf" and seen[-8:].lower() not in keys:
            words.append("{}: its key is not imported into rpm".format(repository["name"]))
        if not source_as_planned(repository, source):
            words.append("{}: {} is missing or different".format(repository["name"], source))
    return words


def key_fingerprint(path):
    """Fingerprint of the key in a file, None where there is no readable key."""
    try:
        with open(path, "rb") as file:
            return fingerprint(read_key(file.read()))
    except (OSError, NotAKey):
        return None


def source_as_planned(repository, path):
    """True where the source file says what the plan wants."""
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
    """True where nobody but the owner may read the file."""
    return not os.stat(path).st_mode & 0o077


def rivals(plan):
    """Other active source files that name a planned repository: two signed-by for one URL stop apt altogether."""
    found = []
    for repository in plan["repositories"]:
        source, _ = paths(repository)
        if repository["kind"] == "apt":
            files = glob.glob(APT_LISTS + "/*.list") + glob.glob(APT_LISTS + "/*.sources") + ["/etc/apt/sources.list"]
        else:
            files = glob.glob(YUM_REPOS + "/*.repo")
        url = re.compile(re.escape(public(repository["url"]).rstrip("/")) + r"/?(\s|$)")
        for path in sorted(set(files) - {source}):
            lines = (line.strip() for line in (text(path) or "").splitlines())
            if any(url.search(line) for line in lines if not line.startswith("#")):
                found.append("{} also names {}".format(path, masked(repository["url"])))
    return found
