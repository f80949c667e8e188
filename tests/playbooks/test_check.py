"""make check: hosts are verified as they are, with a gpucheck of their own or one that goes again."""

import json
import platform
import sys
import tarfile
from pathlib import Path

import pytest

from tests.playbooks.hostile import Site, report
from tests.playbooks.stubs import script

pytestmark = pytest.mark.slow

OWN = """#!/bin/sh
[ "$1" = --version ] && exit
echo "$*" >>{folder}/asked
while [ "$1" != -o ]; do shift; done
cp {folder}/report.json "$2"
"""
# What stands in for gpucheck and its imports; a child of it finds it as it did.
SENT = """
import shutil, subprocess, sys
if sys.argv[1] == "verify":
    with open({folder!r} + "/asked", "a") as file:
        print(sys.executable, *sys.argv[1:], file=file)
    subprocess.run([sys.executable, "-I", "-m", "gpucheck", "child"], check=True)
    shutil.copy({folder!r} + "/report.json", sys.argv[-1])
"""
VERSION = ".".join(platform.python_version_tuple()[:2])
REAL = dict.fromkeys(("command", "gpu_verify", "file", "stat", "copy"), "REALLY")


@pytest.fixture(scope="module")
def sound():
    """A report, made once."""
    return report("node01")


@pytest.fixture
def site(tmp_path, sound):
    """A controller, and the report that its hosts give."""
    (tmp_path / "report.json").write_text(json.dumps(sound))
    return Site(tmp_path, sound)


def left(words):
    """The folders of the run that its command names and that are still there."""
    used = [path.parts[3] for path in map(Path, words.split()) if "gpucheck-transfer-" in str(path)]
    assert used
    return [name for name in used if Path("/var/tmp", name).exists()]


def archive(site, version=VERSION):
    """What the run would download and pack for hosts with this Python."""
    (place,) = (site.folder / "out/build/wheels").iterdir()
    (place / "requirements.lock").touch()
    package = site.folder / "tree/gpucheck"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(SENT.format(folder=str(site.folder)))
    with tarfile.open(place / f"check-{version}-{platform.machine()}.tar.gz", "w:gz") as file:
        file.add(package, "gpucheck")


def test_a_host_with_gpucheck_is_verified_with_it_and_keeps_nothing_of_the_run(site, sound):
    (site.folder / "bin").mkdir()
    script(site.folder / "bin/gpucheck", OWN.format(folder=site.folder))
    site.host("node01", **REAL)
    path = f"{site.folder}/bin:/usr/bin:/bin"

    done = site.run("check.yml", "-e", '{"verify_arguments": ["--level", "quick"]}', PATH=path)

    assert done.returncode == 0, done.stdout
    (words,) = (site.folder / "asked").read_text().splitlines()
    assert words.startswith("verify --level quick --format json -o /var/tmp/gpucheck-transfer-")
    assert not left(words)
    assert site.document("reports/node01.json")["verdict"] == sound["verdict"]
    assert "planned_packages" not in site.asked("node01")
    assert not (site.folder / "out/stack.lock.yml").exists()


def test_a_host_without_gpucheck_gets_it_for_this_run_without_torch(site):
    archive(site)
    site.host("node01", **REAL)

    done = site.run("check.yml", "-e", f"gpucheck_python={sys.executable}", PATH="/usr/bin:/bin")

    assert done.returncode == 0, done.stdout
    (words,) = (site.folder / "asked").read_text().splitlines()
    assert words.startswith("/var/tmp/gpucheck-transfer-")
    assert "/environment/bin/python verify --skip training --skip compute --format json -o /var/tmp/" in words
    assert not left(words)


UNFIT = {
    "old": ("python /usr/bin/python3.9 3.9 x86_64", "the host has Python 3.9 x86_64. Install one next to it"),
    "none": ("", "the host has none. Install one next to it"),
    "ppc": ("python /usr/bin/python3.11 3.11 ppc64le", "the host has Python 3.11 ppc64le."),
    "more": ("python /usr/bin/python3.11 3.11 x86_64; reboot", "the host has Python 3.11 x86_64; reboot."),
}


def test_a_host_without_a_python_for_it_is_a_row_of_the_table_and_the_others_are_verified(site):
    (site.folder / "bin").mkdir()
    script(site.folder / "bin/gpucheck", OWN.format(folder=site.folder))
    site.host("good", **REAL)
    for name, (answer, _) in UNFIT.items():
        site.host(name, command={"changed": False, "rc": 0, "stdout": answer, "stdout_lines": answer.splitlines()})

    done = site.run("check.yml", PATH=f"{site.folder}/bin:/usr/bin:/bin")

    assert done.returncode == 2
    for name, (_, words) in UNFIT.items():
        message = site.document(f"reports/{name}.json")["msg"]
        assert words in " ".join(message.split())
        assert message.endswith("Nothing was changed.")
    assert site.document("reports/good.json")["verdict"] in ("pass", "warn")


def test_what_cannot_be_downloaded_stops_hosts_without_gpucheck_alone(site):
    (site.folder / "none").mkdir()
    (site.folder / "bin").mkdir()
    script(site.folder / "bin/gpucheck", OWN.format(folder=site.folder))
    archive(site, "2.7")
    site.host("good", **REAL)
    answer = "python /usr/bin/python3 3.10 x86_64"
    site.host("node01", **{**REAL, "command": {"changed": False, "stdout": answer, "stdout_lines": [answer]}})
    words = {"gpucheck_pip_args": ["--no-index", "--find-links", f"{site.folder}/none"]}

    done = site.run("check.yml", "-e", json.dumps(words), PATH=f"{site.folder}/bin:/usr/bin:/bin")

    assert done.returncode == 2
    message = site.document("reports/node01.json")["msg"]
    assert "node01: gpucheck for hosts without it could not be prepared on the controller: " in message
    assert "gpucheck_cluster-1-py3-none-any.whl" in message
    assert site.document("reports/good.json")["verdict"] in ("pass", "warn")
