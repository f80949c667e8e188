"""Indexes of repositories, signed: apt's flat form, dnf's repodata and its modules."""

import json
import shutil

from keys import gpg_sign
from programs import WORK, run


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
