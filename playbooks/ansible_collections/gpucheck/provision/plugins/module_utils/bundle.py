"""Collect packages for a bundle with the host's own package manager: its resolver and checks, on a state of our own.

For apt that are lists, status and cache below one folder, for dnf an installation root with a copy of the rpm database.
Nothing of the host's own state is touched.
"""

import bz2
import glob
import gzip
import hashlib
import lzma
import os
import platform
import re
import shutil

from . import host_plan, record, signing_keys
from .host_plan import MODULES_D
from .offers import apt_offers
from .package_repository import YUM_REPOS, pins, yum_file
from .place import put
from .readers.files import Unreadable, command, text
from .readers.system import os_release

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
        put(module, path, binary if apt else armored)


def write(folder, name, content):
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
            name = f"metadata/{number:04d}.{ending}"
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
            raise Unreadable(f"{name} is not installed, and its name does not contain its version")
        version = match.group(1)
    glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[-1]
    return {"version": version, "glibc": glibc, "machine": platform.machine()}


STATUS = "/var/lib/dpkg/status"
ETC = "/etc/apt"
# Desktops and container images refresh or empty caches of the host after every update of lists.
NO_HOOKS = """#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"""


def collect_apt(folder, request, packages):
    """({packages: rows, not_offered: names, modules: []}) after the download. packages: {name: version} installed.

    Raises Unreadable with apt's own error message.
    """
    names = [spec.partition("=")[0] for spec in request["wanted"]]
    base = request["base"] == "host"
    drop = not_there(names + request["optional"], packages, "dpkg") if base else set()
    options = prepare_apt(folder, request, status_without(drop) if base else "")
    command(["apt-get", *options, "-o", "APT::Update::Error-Mode=any", "--quiet", "update"], DOWNLOAD_SECONDS)
    offers = apt_offers(request["optional"], options) if request["optional"] else {}
    left = [name for name in request["optional"] if name not in offers]
    optional = [name for name in request["optional"] if name not in left]
    arguments = ["--yes", "--quiet", "--download-only", "--allow-downgrades", "--allow-change-held-packages", "install"]
    command(["apt-get", *options, *arguments, *request["wanted"], *optional], DOWNLOAD_SECONDS)
    archives = os.path.join(folder, "packages")
    without_epochs(archives)
    rows = collected(archives, ".deb", described_deb)
    metadata = bring(folder, signed_apt_lists(os.path.join(folder, "lists"), {row["sha256"] for row in rows}))
    return {"packages": rows, "not_offered": left, "modules": [], "metadata": metadata}


def signed_apt_lists(folder, digests):
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


def prepare_apt(folder, request, status):
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
        options += ["-o", f"{option}={os.path.join(folder, place)}"]
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


def described_deb(path):
    """(name, version, architecture) of a .deb."""
    layout = "--showformat=${Package} ${Version} ${Architecture}"
    fields = command(["dpkg-deb", "--show", layout, path]).split()
    if len(fields) != 3:
        raise Unreadable(f"{path} is not a package")
    return tuple(fields)


# In the copied database alone: no file of the host is removed, and no script runs.
ERASE = ("--erase", "--justdb", "--nodeps", "--noscripts", "--notriggers", "--allmatches")
VARIABLES = ("/etc/dnf/vars", "/etc/yum/vars")
OPENERS = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open, ".yaml": open}


def collect_dnf(folder, request, packages):
    """{packages: rows, not_offered: names, modules: files} after the download. packages: {name: version} installed.

    Raises Unreadable with dnf's own error message.
    """
    root = os.path.join(folder, "root")
    prepare_root(root, request, packages)
    dnf = dnf_words(folder, root, request)
    unpack_prerequisites(folder, root, dnf, request)
    stream = request["module_stream"]
    if stream:
        command([*dnf, "module", "enable", "{module}:{stream}".format(**stream)], DOWNLOAD_SECONDS)
    optional = [name for name in request["optional"] if dnf_offers(dnf, name)]
    place = os.path.join(folder, "packages")
    download(dnf, place, [*request["wanted"], *optional])
    left = [name for name in request["optional"] if name not in optional]
    modules = module_documents(folder)
    rows = collected(place, ".rpm", described_rpm)
    return {
        "packages": rows,
        "not_offered": left,
        "modules": modules,
        "metadata": bring(folder, signed_dnf_lists(folder)),
    }


def signed_dnf_lists(folder):
    """For each source its repomd.xml, with its signature, and its list of packages; without a signature nothing."""
    groups = []
    for path in sorted(glob.glob(os.path.join(folder, "cache", "*", "repodata", "repomd.xml"))):
        if os.path.isfile(path + ".asc"):
            group = {"repomd.xml": path, "repomd.xml.asc": path + ".asc"}
            for primary in glob.glob(os.path.join(os.path.dirname(path), "*primary.xml*")):
                group["primary.xml" + primary.rpartition("primary.xml")[2]] = primary
            groups.append(group)
    return groups


def prepare_root(root, request, packages):
    """A root with the host's rpm database, less what has to count as not installed, and its module streams."""
    database = command(["rpm", "--eval", "%{_dbpath}"]).strip()
    if request["base"] == "host":
        shutil.copytree(database, root + database)
        names = [wanted_name(spec, packages) for spec in request["wanted"] + request["optional"]]
        drop = sorted(not_there(names, packages, "rpm"))
        if drop:
            command(["rpm", "--dbpath", root + database, *ERASE, *drop], DOWNLOAD_SECONDS)
    else:
        os.makedirs(root + database)
    # With an installation root dnf reads there the variables of the sources' addresses, and the platform
    # that module streams are for.
    for variables in VARIABLES:
        if os.path.isdir(variables):
            shutil.copytree(variables, root + variables)
    os.makedirs(root + MODULES_D)
    shutil.copy("/etc/os-release", root + "/etc/os-release")
    for path in glob.glob(MODULES_D + "/*.module"):
        if not request["module_stream"] or os.path.basename(path) != request["module_stream"]["module"] + ".module":
            shutil.copy(path, root + MODULES_D)


def wanted_name(spec, packages):
    """The installed package that a spec such as ``name-epoch:version-release`` means, else the spec itself."""
    parts = spec.split("-")
    names = ("-".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((name for name in names if name in packages), spec)


def releasever():
    """What the host's dnf fills into addresses: a site may keep its hosts at 9.4, else it is the major release."""
    stated = [text(os.path.join(folder, "releasever")) for folder in VARIABLES]
    return next(filter(None, stated), "") or os_release().get("VERSION_ID", "").partition(".")[0]


def dnf_words(folder, root, request):
    for name, content in source_files(YUM_REPOS, (".repo",), request["repositories"]):
        write(folder, "repos/" + name, content)
    for repository in request["repositories"]:
        settings = dict(yum_file(repository), gpgkey="file://{}/keys/{name}.asc".format(folder, **repository))
        lines = [f"{key}={value}" for key, value in sorted(settings.items())]
        content = "[{name}]\nname={name}\n".format(**repository) + "\n".join(lines) + "\n"
        write(folder, "repos/{name}.repo".format(**repository), content)
    os.makedirs(os.path.join(folder, "log"), exist_ok=True)
    settings = {
        "reposdir": os.path.join(folder, "repos"),
        "cachedir": os.path.join(folder, "cache"),
        "logdir": os.path.join(folder, "log"),
        "install_weak_deps": "False",
        "skip_if_unavailable": "False",
    }
    words = ["dnf", "--quiet", "--assumeyes", "--installroot=" + root, "--releasever=" + request["releasever"]]
    # Our own version locks would keep the planned versions out, and the other one writes into the host's cache.
    words += ["--disableplugin=versionlock", "--disableplugin=generate_completion_cache"]
    return words + [f"--setopt={key}={value}" for key, value in sorted(settings.items())]


def unpack_prerequisites(folder, root, dnf, request):
    """Packages that bring further sources, such as epel-release: their sources are used from here on.

    They stay out of the bundle: a host without a network has no use for more sources.
    """
    before = os.path.join(folder, "prerequisites")
    names = [name for name in request["prerequisites"] if dnf_offers(dnf, name)]
    if not names:
        return
    download(dnf, before, names)
    files = sorted(glob.glob(before + "/*.rpm"))
    if not files:
        return  # the host has them, and with them their sources
    command(["rpm", "--root", root, "--install", "--nodeps", "--noscripts", "--notriggers", *files], DOWNLOAD_SECONDS)
    for name, content in source_files(root + YUM_REPOS, (".repo",), request["repositories"]):
        write(folder, "repos/" + name, content.replace("file:///etc/pki/", f"file://{root}/etc/pki/"))


def download(dnf, place, specs):
    os.makedirs(place, exist_ok=True)
    command([*dnf, "--downloadonly", "--downloaddir=" + place, "--allowerasing", "install", *specs], DOWNLOAD_SECONDS)


def dnf_offers(dnf, name):
    return bool(command([*dnf, "repoquery", "--queryformat", "%{name}\n", name], DOWNLOAD_SECONDS).strip())


def module_documents(folder):
    """Return the uncompressed module metadata of each source: dnf rejects packages of a stream without it."""
    found = []
    for path in sorted(glob.glob(os.path.join(folder, "cache", "*", "repodata", "*modules.yaml*"))):
        ending = os.path.splitext(path)[1]
        if ending == ".zst":
            content = command(["zstd", "--decompress", "--stdout", path], DOWNLOAD_SECONDS)
        elif ending in OPENERS:
            with OPENERS[ending](path, "rb") as file:
                content = file.read().decode("utf-8", "replace")
        else:
            raise Unreadable(f"{path}: module metadata in a compression that is not known here")
        name = "modules/{}-modules.yaml".format(re.sub(r"-[0-9a-f]+$", "", path.split("/")[-3]))
        found.append(os.path.relpath(write(folder, name, content), folder))
    return found


def described_rpm(path):
    """Return (name, version with epoch and release, architecture) of an .rpm; an epoch of 0 is omitted, as in plans."""
    layout = "%{NAME} %|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE} %{ARCH}"
    return tuple(command(["rpm", "--query", "--package", "--nosignature", "--queryformat", layout, path]).split())
