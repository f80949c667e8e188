"""Collect packages with dnf: its own resolver and checks, on an installation root of our own below one folder.

The root holds a copy of the host's rpm database and nothing else. Nothing of the host's own dnf and rpm is touched.
"""

import bz2
import glob
import gzip
import lzma
import os
import re
import shutil

from .bundle import DOWNLOAD_SECONDS, bring, collected, not_there, source_files, write
from .host_plan import MODULES_D
from .package_repository import YUM_REPOS, yum_file
from .readers.files import Unreadable, command

# In the copied database alone: no file of the host is removed, and no script runs.
ERASE = ("--erase", "--justdb", "--nodeps", "--noscripts", "--notriggers", "--allmatches")
VARIABLES = ("/etc/dnf/vars", "/etc/yum/vars")
OPENERS = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open, ".yaml": open}


def collect(folder, request, packages):
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
    optional = [name for name in request["optional"] if offered(dnf, name)]
    place = os.path.join(folder, "packages")
    download(dnf, place, [*request["wanted"], *optional])
    left = [name for name in request["optional"] if name not in optional]
    modules = module_documents(folder)
    rows = collected(place, ".rpm", described)
    return {"packages": rows, "not_offered": left, "modules": modules, "metadata": bring(folder, signed_lists(folder))}


def signed_lists(folder):
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


def dnf_words(folder, root, request):
    """dnf on that root, with the host's own sources and the plan's."""
    for name, content in source_files(YUM_REPOS, (".repo",), request["repositories"]):
        write(folder, "repos/" + name, content)
    for repository in request["repositories"]:
        settings = dict(yum_file(repository), gpgkey="file://{}/keys/{name}.asc".format(folder, **repository))
        lines = ["{}={}".format(key, value) for key, value in sorted(settings.items())]
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
    return words + ["--setopt={}={}".format(key, value) for key, value in sorted(settings.items())]


def unpack_prerequisites(folder, root, dnf, request):
    """Packages that bring further sources, such as epel-release: their sources are used from here on.

    They stay out of the bundle: a host without a network has no use for more sources.
    """
    before = os.path.join(folder, "prerequisites")
    names = [name for name in request["prerequisites"] if offered(dnf, name)]
    if not names:
        return
    download(dnf, before, names)
    files = sorted(glob.glob(before + "/*.rpm"))
    if not files:
        return  # the host has them, and with them their sources
    command(["rpm", "--root", root, "--install", "--nodeps", "--noscripts", "--notriggers", *files], DOWNLOAD_SECONDS)
    for name, content in source_files(root + YUM_REPOS, (".repo",), request["repositories"]):
        write(folder, "repos/" + name, content.replace("file:///etc/pki/", "file://{}/etc/pki/".format(root)))


def download(dnf, place, specs):
    """The packages and what they need, checked by dnf as before an installation."""
    os.makedirs(place, exist_ok=True)
    command([*dnf, "--downloadonly", "--downloaddir=" + place, "--allowerasing", "install", *specs], DOWNLOAD_SECONDS)


def offered(dnf, name):
    """Whether the sources have the package."""
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
            raise Unreadable("{}: module metadata in a compression that is not known here".format(path))
        name = "modules/{}-modules.yaml".format(re.sub(r"-[0-9a-f]+$", "", path.split("/")[-3]))
        found.append(os.path.relpath(write(folder, name, content), folder))
    return found


def described(path):
    """Return (name, version with epoch and release, architecture) of an .rpm; an epoch of 0 is omitted, as in plans."""
    layout = "%{NAME} %|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE} %{ARCH}"
    return tuple(command(["rpm", "--query", "--package", "--nosignature", "--queryformat", layout, path]).split())
