#!/usr/bin/python3
"""Build, sign and put in place every repository of the lab's mirror. Runs inside the mirror container.

Reads catalogue.json, payload/, nvml/, exports/ in /srv/build. Keys are in /srv/keys, made when they are missing: they
exist nowhere but in this container. The result replaces what /srv/www serves, in one rename per tree, once it is whole.
``bad/`` is the same again, signed with a key that nobody publishes.
"""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BUILD, KEYS, WWW, WORK = Path("/srv/build"), Path("/srv/keys"), Path("/srv/www"), Path("/srv/work")
MAINTAINER = "gpucheck lab (stand-in packages, SIMULATED) <lab@localhost>"
DEB_RELATIONS = {"depends": "Depends", "provides": "Provides", "conflicts": "Conflicts"}
RPM_RELATIONS = {"depends": "Requires", "provides": "Provides", "conflicts": "Conflicts"}


def run(*words, cwd=None, stdout=None, **environment):
    """Run a program; its output is shown only when it fails."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=stdout or subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))} exited {done.returncode}:\n{done.stderr}{done.stdout or ''}")
    return done.stdout


# Keys


def key(name):
    """Make a signing key unless it is there. Returns its folder."""
    home = KEYS / name
    if not (home / "fingerprint").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True, mode=0o700)
        identity = f"gpucheck lab {name} key"
        gpg = ("gpg", "--batch", "--homedir", home)
        run(*gpg, "--passphrase", "", "--quick-gen-key", identity, "rsa3072", "sign", "never")
        (home / "key.asc").write_text(run(*gpg, "--armor", "--export"))
        lines = run(*gpg, "--with-colons", "--fingerprint").splitlines()
        fingerprint = next(line.split(":")[9] for line in lines if line.startswith("fpr:"))
        (home / "fingerprint").write_text(fingerprint)
    return home


def gpg_sign(home, *arguments):
    """Sign with the key in a folder."""
    run("gpg", "--batch", "--yes", "--homedir", home, "--passphrase", "", "--pinentry-mode", "loopback", *arguments)


# Packages


def stage(package, root):
    """Lay out a package's files below root. Returns the absolute paths that belong to the package."""
    words = {"@VERSION@": package["version"], "@SHORT@": ".".join(package["version"].split(".")[:2])}
    paths = []

    def place(path, mode, text=None, source=None):
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source is not None:
            shutil.copy(source, target)
        else:
            for word, value in words.items():
                text = text.replace(word, value)
            target.write_text(text)
        target.chmod(int(mode, 8))
        paths.append(path)

    for path, file in package["files"].items():
        text = file["text"] if file.get("text") is not None else (BUILD / "payload" / file["payload"]).read_text()
        place(path, file.get("mode", "0644"), text=text)
    links = dict(package["links"])
    if package["nvml"]:
        library = f"libnvidia-ml.so.{package['version']}"
        place(
            f"{package['nvml']}/{library}", "0755", source=WORK / package["version"].split(".")[0] / "libnvidia-ml.so"
        )
        links[f"{package['nvml']}/libnvidia-ml.so.1"] = library
    for path, target in links.items():
        link = root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        paths.append(path)
    # So that no package is empty, and each says what it is.
    place(f"/usr/share/doc/{package['name']}/SIMULATED", "0644", text="A stand-in package of the gpucheck lab.\n")
    return paths


def build_deb(package, folder, number):
    """Write one .deb into folder."""
    root = WORK / f"deb-{number}"
    stage(package, root)
    control = root / "DEBIAN"
    control.mkdir()
    version = f"{package['version']}-{package['revision']}"
    if package["epoch"] is not None:
        version = f"{package['epoch']}:{version}"
    fields = [
        f"Package: {package['name']}",
        f"Version: {version}",
        "Architecture: amd64",
        f"Maintainer: {MAINTAINER}",
        "Section: misc",
        "Priority: optional",
        *(f"{title}: {', '.join(package[name])}" for name, title in DEB_RELATIONS.items() if package[name]),
        # What is taken over from a package of another branch goes away with that package.
        *([f"Replaces: {', '.join(package['conflicts'])}"] if package["conflicts"] else []),
        f"Description: {package['summary']}\n A stand-in package of the gpucheck lab. SIMULATED.",
    ]
    (control / "control").write_text("\n".join(fields) + "\n")
    scripts = {"postinst": (package["on_install"], "configure"), "prerm": (package["on_remove"], "remove")}
    for name, (text, when) in scripts.items():
        text = with_service(package, text, name == "postinst")
        if text:
            (control / name).write_text(f'#!/bin/sh\nset -e\nif [ "$1" = {when} ]; then\n{text}\nfi\n')
            (control / name).chmod(0o755)
    folder.mkdir(parents=True, exist_ok=True)
    run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", root, folder)
    shutil.rmtree(root)


def with_service(package, text, installing):
    """A package script's text with what its systemd unit needs, where systemd runs."""
    unit = package["service"]
    if not unit:
        return text
    words = "daemon-reload" if installing else f"disable --now {unit}.service"
    return "\n".join(filter(None, [text, f"if [ -d /run/systemd/system ]; then systemctl {words}; fi"]))


def build_rpm(package, folder, number):
    """Write one .rpm into folder, not yet signed."""
    root = WORK / f"rpm-{number}"
    paths = stage(package, root / "files")
    relations = [f"{title}: {item}" for name, title in RPM_RELATIONS.items() for item in package[name]]
    post = with_service(package, package["on_install"], True)
    preun = with_service(package, package["on_remove"], False)
    if post:
        # A script may need what it requires before this package's turn comes.
        relations += [f"Requires(post): {item}" for item in package["depends"]]
    spec = [
        f"Name: {package['name']}",
        f"Version: {package['version']}",
        f"Release: {package['revision']}",
        *([f"Epoch: {package['epoch']}"] if package["epoch"] is not None else []),
        f"Summary: {package['summary']}",
        "License: stand-in",
        "AutoReqProv: no",
        *relations,
        "%description",
        "A stand-in package of the gpucheck lab. SIMULATED.",
        "%install",
        f"mkdir -p %{{buildroot}}\ncp -a {root / 'files'}/. %{{buildroot}}/",
        *(["%post", post] if post else []),
        *(["%preun", 'if [ "$1" -eq 0 ]; then', preun, "fi"] if preun else []),
        "%files",
        *paths,
    ]
    (root / "package.spec").write_text("\n".join(spec) + "\n")
    definitions = {
        "_topdir": root,
        "_rpmdir": folder,
        "_rpmfilename": "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm",
        "__os_install_post": "%{nil}",
        "debug_package": "%{nil}",
        "_build_id_links": "none",
        "_binary_payload": "w1.gzdio",
    }
    defines = [word for name, value in definitions.items() for word in ("--define", f"{name} {value}")]
    folder.mkdir(parents=True, exist_ok=True)
    run("rpmbuild", "--quiet", "-bb", "--target", "x86_64", *defines, root / "package.spec")
    shutil.rmtree(root)


# Repositories


def sign_rpms(home, folder):
    """Sign every package of a folder, replacing a signature that is there."""
    name = f"gpucheck lab {home.name} key"
    defines = ("--define", f"_gpg_name {name}", "--define", f"_gpg_path {home}", "--define", "__gpg /usr/bin/gpg")
    run("rpmsign", "--addsign", *defines, *sorted(folder.glob("*.rpm")))


def index_deb(home, folder, origin):
    """Write Packages, Release and its signatures: a flat repository, as NVIDIA's are."""
    run("apt-ftparchive", "packages", ".", cwd=folder, stdout=(folder / "Packages").open("w"))
    facts = {"Origin": origin, "Label": origin, "Architectures": "amd64", "Description": "SIMULATED"}
    options = [word for name, value in facts.items() for word in ("-o", f"APT::FTPArchive::Release::{name}={value}")]
    # Written elsewhere first: Release must not list itself.
    with (WORK / "Release").open("w") as release:
        run("apt-ftparchive", *options, "release", ".", cwd=folder, stdout=release)
    shutil.move(WORK / "Release", folder / "Release")
    gpg_sign(home, "--clearsign", "--output", folder / "InRelease", folder / "Release")
    gpg_sign(home, "--detach-sign", "--armor", "--output", folder / "Release.gpg", folder / "Release")


def index_rpm(home, folder, streams):
    """Write repodata, with module metadata where the repository has modules, and sign it."""
    run("createrepo_c", "--quiet", "--general-compress-type=gz", folder)
    if streams:
        (WORK / "modules.yaml").write_text(streams)
        run("modifyrepo_c", "--mdtype=modules", WORK / "modules.yaml", folder / "repodata")
    gpg_sign(
        home, "--detach-sign", "--armor", "--output", folder / "repodata/repomd.xml.asc", folder / "repodata/repomd.xml"
    )


def module_documents(modules, packages):
    """modules.yaml: a document a stream, and the default stream. (JSON is YAML.)"""
    documents = []
    for stream, content in modules["streams"].items():
        names = {*modules["common"], *content["packages"]}
        members = [p for p in packages if p["repository"] == modules["repository"]]
        members = [p for p in members if p["name"] in names and p["version"] in content["versions"]]
        artifacts = [f"{p['name']}-{p['epoch'] or 0}:{p['version']}-{p['revision']}.x86_64" for p in members]
        fabric = ["nvidia-fabricmanager", "libnvidia-nscq"]
        data = {
            "name": modules["module"],
            "stream": stream,
            "version": 1,
            "context": "ab12cd34",
            "arch": "x86_64",
            "summary": "Nvidia driver (SIMULATED)",
            "description": f"Stream {stream} (SIMULATED)",
            "license": {"module": ["stand-in"]},
            "profiles": {
                "default": {"rpms": [content["packages"][-1]]},
                "ks": {"rpms": [content["packages"][-1]]},
                "fm": {"rpms": [content["packages"][-1], *fabric]},
            },
            "artifacts": {"rpms": sorted(artifacts)},
        }
        documents.append({"document": "modulemd", "version": 2, "data": data})
    default = {
        "module": modules["module"],
        "stream": modules["default_stream"],
        "profiles": {stream: ["default"] for stream in modules["streams"]},
    }
    documents.append({"document": "modulemd-defaults", "version": 1, "data": default})
    return "".join(f"---\n{json.dumps(document, indent=1)}\n...\n" for document in documents)


def compile_library(branch):
    """The simulated NVML of a driver branch; it learns its version from the file name that a package gives it."""
    exports = BUILD / "exports" / branch
    options = ["-std=gnu11", "-O2", "-shared", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Werror", f"-I{exports}"]
    linking = ["-Wl,-soname,libnvidia-ml.so.1", f"-Wl,--version-script={exports}/exports.map"]
    (WORK / branch).mkdir()
    sources = sorted((BUILD / "nvml").glob("*.c"))
    run("cc", *options, *linking, "-o", WORK / branch / "libnvidia-ml.so", *sources, "-ldl")


def main():
    """Build everything, then put it in place."""
    catalogue = json.loads((BUILD / "catalogue.json").read_text())
    packages, repositories = catalogue["packages"], catalogue["repositories"]
    shutil.rmtree(WORK, ignore_errors=True)
    new = WORK / "www"
    new.mkdir(parents=True)
    for branch in {package["version"].split(".")[0] for package in packages if package["nvml"]}:
        compile_library(branch)
    good, bad = key("good"), key("bad")
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        jobs = []
        for number, package in enumerate(packages):
            build = build_deb if package["kind"] == "deb" else build_rpm
            jobs.append(pool.submit(build, package, new / repositories[package["repository"]]["path"], number))
        for job in jobs:
            job.result()
    streams = {catalogue["modules"]["repository"]: module_documents(catalogue["modules"], packages)}
    shutil.copytree(new, new / "bad", copy_function=os.link)
    for home, root in ((good, new), (bad, new / "bad")):
        for name, repository in repositories.items():
            folder = root / repository["path"]
            if repository["kind"] == "deb":
                index_deb(home, folder, repository["origin"])
            else:
                sign_rpms(home, folder)
                index_rpm(home, folder, streams.get(name))
            # The bad tree publishes the good key: what is served does not fit the key that a site trusts.
            (root / repository["key"]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(good / "key.asc", root / repository["key"])
            shutil.copy(good / "key.asc", folder / "key.asc")
            if repository["alias"]:
                alias = root / repository["alias"]
                alias.parent.mkdir(parents=True)
                alias.symlink_to(os.path.relpath(folder, alias.parent))
    (WORK / "old").mkdir()
    for tree in sorted(new.iterdir()):
        if (WWW / tree.name).exists():
            (WWW / tree.name).rename(WORK / "old" / tree.name)
        tree.rename(WWW / tree.name)
    shutil.rmtree(WORK)


if __name__ == "__main__":
    main()
