#!/usr/bin/python3
"""Build, sign and put in place every repository of the lab's mirror. Runs inside the mirror container.

Reads catalogue.json, payload/, nvml/, cuda/, exports/ in /srv/build. Keys are in /srv/keys, made when missing: they
exist nowhere but in this container. The result replaces what /srv/www serves, in one rename per tree, once it is whole.
``bad/`` is the same again, signed with a key that nobody publishes.
"""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

from keys import key
from packages import build_deb, build_rpm
from programs import BUILD, WORK, WWW, run
from repositories import index_deb, index_rpm, module_documents, sign_rpms


def compile_library(branch):
    """The simulated NVML of a driver branch; it learns its version from the file name that a package gives it."""
    exports = BUILD / "exports" / branch
    options = ["-std=gnu11", "-O2", "-shared", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Werror", f"-I{exports}"]
    linking = ["-Wl,-soname,libnvidia-ml.so.1", f"-Wl,--version-script={exports}/exports.map"]
    (WORK / branch).mkdir()
    sources = sorted((BUILD / "nvml").glob("*.c"))
    run("cc", *options, *linking, "-o", WORK / branch / "libnvidia-ml.so", *sources, "-ldl")


def compile_cuda_library():
    """The simulated CUDA driver library, the same for all branches. It includes nvml/table.c."""
    options = ["-std=gnu11", "-O2", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wall", "-Werror"]
    sources = [*sorted((BUILD / "cuda").glob("*.c")), BUILD / "nvml/table.c"]
    run("cc", *options, "-Wl,-soname,libcuda.so.1", "-o", WORK / "libcuda.so", *sources, "-lm", "-ldl")


def main():
    """Build everything, then put it in place."""
    catalogue = json.loads((BUILD / "catalogue.json").read_text())
    packages, repositories = catalogue["packages"], catalogue["repositories"]
    shutil.rmtree(WORK, ignore_errors=True)
    new = WORK / "www"
    new.mkdir(parents=True)
    for branch in {package["version"].split(".")[0] for package in packages if package["nvml"]}:
        compile_library(branch)
    compile_cuda_library()
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
