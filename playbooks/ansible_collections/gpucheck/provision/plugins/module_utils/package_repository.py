"""Package repositories of a plan against a host's files."""

import os
import re
from urllib.parse import urlsplit

from .credentials import APT_AUTH, SECRET_MODE, auth_line, login, public
from .openpgp import LARGEST_KEY_BYTES, NotAKey, digest, fingerprints, read_key
from .readers.files import text

APT_LISTS = "/etc/apt/sources.list.d"
APT_CONF = "/etc/apt/apt.conf.d"
# Client certificates of mirrors that a run writes; others are managed by your cluster.
CLIENT_FILES = "/etc/gpucheck/mirrors/"
CLIENT_SETTINGS = ("sslclientcert", "sslclientkey")
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


def client_of(repository):
    """(certificate, key): the paths that the mirror requires, (None, None) if it requires nothing."""
    return repository.get("client_certificate"), repository.get("client_key")


def client_conf(repository):
    """The path of apt's settings for the mirror's client certificate, None where it has none."""
    if repository["kind"] != "apt" or not client_of(repository)[1]:
        return None
    return os.path.join(APT_CONF, "52gpucheck-" + repository["name"])


def client_text(repository):
    """apt's settings for the host of the mirror: other hosts are not shown the certificate."""
    scope = "Acquire::https::{}::".format(urlsplit(repository["url"]).hostname)
    rows = zip(("SslCert", "SslKey"), client_of(repository))
    return "".join('{}{} "{}";\n'.format(scope, name, path) for name, path in rows)


def same_host(repository):
    """Whether the signing key is fetched from the mirror itself."""
    return urlsplit(repository["url"]).hostname == urlsplit(repository["key_url"]).hostname


def our_client_files(repository):
    """Those of client_of that a run writes."""
    return [path for path in client_of(repository) if path and path.startswith(CLIENT_FILES)]


def client_differences(repository):
    """Return messages if files for the mirror are missing, or if other users can read a managed one."""
    found = [path for path in client_of(repository) if path and not os.path.isfile(path)]
    words = ["{}: {} for its mirror is missing".format(repository["name"], path) for path in found]
    key = client_of(repository)[1]
    if key in our_client_files(repository) and not found and not private(key):
        words.append("{}: others can read {}".format(repository["name"], key))
    return words


def all_paths(repository):
    """Every file of a repository."""
    more = (auth_file(repository), client_conf(repository), *our_client_files(repository))
    return [*paths(repository), *(path for path in more if path)]


def rows(repository):
    """(path, content, mode) of every file that names the source: credentials are root's alone."""
    source, auth = paths(repository)[0], auth_file(repository)
    mode = SECRET_MODE if repository["kind"] == "dnf" and login(repository["url"]) else 0o644
    # The credentials first: the server rejects a source without them.
    found = [(auth, auth_line(repository["url"]), SECRET_MODE)] if auth else []
    conf = client_conf(repository)
    found += [(conf, client_text(repository), 0o644)] if conf else []
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
        **(dict(zip(CLIENT_SETTINGS, client_of(repository))) if client_of(repository)[1] else {}),
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
    lines = ["{} = {}".format(name, settings[name]) for name in sorted(settings)]
    return "\n".join(["[{}]".format(repository["name"]), *lines, "", ""])


def pins(stated):
    """Pinned fingerprints or digests, ``EB69 3B30 ..., 610C...``: in capitals, without spaces; [] for none."""
    return [part for part in re.sub(r"\s", "", stated or "").upper().split(",") if part]


def key_as_planned(repository):
    """True if the key file holds pinned keys and no other."""
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
        source, key_file = paths(repository)
        present, wanted = key_fingerprints(key_file), pins(repository["key_fingerprint"])
        if not present:
            words.append("{}: its key {} is missing".format(repository["name"], key_file))
        elif not file_pinned(key_file, wanted):
            values = [repository["name"], key_file, ", ".join(present), ", ".join(wanted) or "none"]
            words.append("{}: {} holds key {}, planned {}".format(*values))
        elif repository["kind"] == "dnf" and not set(present) <= set(keys):
            words.append("{}: its key is not imported into rpm".format(repository["name"]))
        if not source_as_planned(repository, source):
            words.append("{}: {} is missing or different".format(repository["name"], source))
        words += client_differences(repository)
    return words


def key_fingerprints(path):
    """Fingerprints of all keys in a file, [] if it is missing or not a key file."""
    try:
        return fingerprints(read_key(read(path)))
    except (OSError, NotAKey):
        return []


def source_as_planned(repository, path):
    """Return True if the source file equals the planned one."""
    content = text(path)
    if content is None:
        return False
    auth = auth_file(repository)
    if auth and (text(auth) != auth_line(repository["url"]).strip() or not private(auth)):
        return False
    conf = client_conf(repository)
    if conf and text(conf) != client_text(repository).strip():
        return False
    if repository["kind"] == "apt":
        return content == source_line(repository).strip()
    if login(repository["url"]) and not private(path):
        return False
    seen = dict((part.strip() for part in line.split("=", 1)) for line in content.splitlines() if "=" in line)
    wanted = yum_file(repository)
    if any(name in seen and name not in wanted for name in CLIENT_SETTINGS):
        return False
    return all(seen.get(key) == value for key, value in wanted.items())


def private(path):
    """Return True if only the owner may read the file."""
    return not os.stat(path).st_mode & 0o077
