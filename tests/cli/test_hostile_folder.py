"""Every command in a directory full of another user's modules, programs and files: it runs and reads none of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from gpucheck.cli import cli
from gpucheck.processes.environment import ROOT, python_module
from tests.cli.commands import write_site
from tests.shared import END_S, sampled

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="another user's files can only be made by root"),
]

STRANGER, USER = 65534, 61234
# Another user, who reads the interpreter wherever root keeps it, and writes only what is his.
AS_USER = (
    *("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=+dac_read_search"),
    *("--ambient-caps=+dac_read_search", "--bounding-set=-all,+dac_read_search"),
)
P100 = "--simulate p100-pcie-x2"
# A line for each command; SITE holds honest files, OUT takes results. What would start containers meets no engine.
COMMANDS = f"""
bundle files SITE/missing -o OUT/files
bundle make --lock SITE/lock.yml --collected SITE/missing --wheel a.whl --wheel-digest 0 -o OUT/bundle
bundle order --lock SITE/lock.yml --facts SITE/facts.json -o OUT/order
bundle verify SITE/missing
diagnose SITE/nccl.txt
explain iommu-translation
fleet evidence SITE/missing
fleet history SITE/reports
fleet report SITE/reports
gate --nodes a,b -- true
image build torch-cpu
image context torch-cpu
image list
isolate --simulate-fleet nodes=4
lab down
lab status
lab up
network {P100}
profiles
record {P100} -o OUT/recording
schema report
simulate p100-pcie-x2 -- true
stack check {P100}
stack check-repositories --lock SITE/lock.yml --index SITE/missing
stack lock --spec SITE/stack.yml --facts SITE/facts.json -o OUT/lock.yml
stack plan --lock SITE/lock.yml --host a
stack resolve --gpu H200 --os ubuntu-22.04
stack rules
stack tables
topo {P100}
verify {P100} --level quick
"""
# Those that copy, compute or train.
LONG = f"""
bandwidth --devices cpu,cpu
collectives {P100} --sizes 8K
compute --devices cpu,cpu
compute --level burn-in --duration 10m {P100} --state gpucheck-burn-in.json
record --full {P100} -o OUT/recording
smoke --framework torch --steps 10
stack check {P100} --import-torch
verify {P100} --only p2p
"""
ROWS = [line for line in COMMANDS.splitlines() if line]
MORE = [line for line in LONG.splitlines() if line]
CODE = "import os, sys; open('MARK', 'a').write(f'{os.getuid()} {__name__} {sys.orig_argv[1:4]}\\n')\n"
MODULES = (
    *("gpucheck", "numpy", "torch", "json", "yaml", "click", "msgspec", "sitecustomize", "usercustomize", "runpy"),
    *("pip", "uv", "docker", "pynvml", "cuda", "jax", "tensorflow", "cupy", "faulthandler", "random", "socket"),
)
PROGRAMS = (
    *("nvidia-smi", "lspci", "modinfo", "journalctl", "dmesg", "cc", "gcc", "as", "ld"),
    *("gpg", "gpgv", "gpgconf", "docker", "dockerd", "trivy", "grype", "rpm", "dpkg-query"),
    *("systemctl", "ibstat", "uname", "sh", "env", "sudo", "git", "apt-get", "ps"),
    *("ldconfig", "mokutil", "python", "python3", "debootstrap", "apt-ftparchive", "createrepo_c"),
)
FIFOS = ("gpucheck-burn-in.json", ".env", "uv.toml", "pip.conf", "trivy.yaml", ".grype.yaml")


class Place(NamedTuple):
    """folder: the hostile one. site: honest files. mark: what the hostile code would write."""

    folder: Path
    site: Path
    mark: Path


def leaves(command, name=()):
    """The names of all commands below a group."""
    if not isinstance(command, click.Group):
        return [" ".join(name)]
    context = click.Context(command)
    return [
        one
        for word in command.list_commands(context)
        for one in leaves(command.get_command(context, word), (*name, word))
    ]


@pytest.fixture(scope="module")
def users_cache(tmp_path_factory):
    """The cache of the other user."""
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    folder = tmp_path_factory.mktemp("cache")
    os.chown(folder, USER, USER)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Honest files of root."""
    folder = tmp_path_factory.mktemp("site")
    folder.chmod(0o755)
    write_site(folder)
    (folder / "nccl.txt").write_text("NCCL WARN Error: failed to extend /dev/shm/nccl-abc to 33030532 bytes\n")
    return folder


def left_by_a_stranger(folder, mark):
    """Fill the directory with what would write to mark if it was imported, run or loaded, and with what hangs."""
    folder.mkdir()
    code = CODE.replace("MARK", str(mark))
    for name in PROGRAMS:
        (folder / name).write_text(f'#!/bin/sh\necho "$(id -u) $0 $*" >>{mark}\n')
    for name in {*MODULES} - {*PROGRAMS}:
        (folder / name).mkdir()
        for file in ("__init__.py", "__main__.py"):
            (folder / name / file).write_text(code)
    for name in MODULES:
        (folder / f"{name}.py").write_text(code)
    for name in FIFOS:
        os.mkfifo(folder / name)
    (folder / "stack.lock.yml").symlink_to("/etc/passwd")
    for path in folder.rglob("*"):
        os.lchown(path, STRANGER, STRANGER)
        if path.is_file() and not path.is_symlink():
            path.chmod(0o777)


@pytest.fixture
def place(tmp_path, site):
    """A directory that anybody may write, and what its owner left there."""
    found = Place(tmp_path / "hostile", site, tmp_path / "mark")
    left_by_a_stranger(found.folder, found.mark)
    found.mark.touch()
    found.mark.chmod(0o666)
    return found


def run(place, line, before=(), **environment):
    """Run a command there. Returns its exit status and its messages."""
    out = place.mark.with_name("out")
    out.mkdir(exist_ok=True)
    if before:
        os.chown(out, USER, USER)
    words = line.replace("SITE", str(place.site)).replace("OUT", str(out)).split()
    kept = {
        name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "GPUCHECK", "XDG", "CUDA"))
    }
    done = subprocess.run(
        [*before, *python_module("gpucheck"), *words], env=kept | {"DOCKER_HOST": "unix:///nonexistent"} | environment,
        cwd=place.folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=END_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_every_command_has_a_row():
    rows = [*ROWS, *MORE]
    missing = [name for name in leaves(cli) if not any(f"{row} ".startswith(f"{name} ") for row in rows)]
    assert missing == []


def test_the_folder_would_be_believed_by_python_itself(place):
    """What the rows below are protected from."""
    subprocess.run([sys.executable, "-m", "json"], cwd=place.folder, check=False, capture_output=True)
    subprocess.run(["nvidia-smi"], env={"PATH": str(place.folder)}, cwd=place.folder, check=True)
    assert len(place.mark.read_text().splitlines()) >= 2


def lines(first):
    """In make test every second command from this one on, in make test-more all, and those that measure."""
    return sampled([*ROWS, *MORE], lambda number, row: row not in MORE and number % 2 == first)


@pytest.mark.parametrize("line", lines(0))
def test_root_runs_nothing_of_another_users_folder(place, cache, line):
    """The directory belongs to a stranger; PATH, HOME and TMPDIR name it too."""
    os.chown(place.folder, STRANGER, STRANGER)
    place.folder.chmod(0o1777)
    path = f":.:{place.folder}:{os.environ['PATH']}:"
    hostile = {"PATH": path, "HOME": str(place.folder), "TMPDIR": str(place.folder)}
    status, text = run(place, line, XDG_CACHE_HOME=str(cache), **hostile)

    assert place.mark.read_text() == ""
    assert status in (0, 1, 2, 3, 64), text
    assert "Traceback" not in text


@pytest.mark.parametrize("line", lines(1))
def test_a_user_runs_nothing_of_a_shared_folder(place, users_cache, line):
    """The directory is as /tmp: everybody's, and sticky."""
    place.folder.chmod(0o1777)
    home = place.mark.with_name("home")
    home.mkdir()
    os.chown(home, USER, USER)
    status, text = run(place, line, AS_USER, XDG_CACHE_HOME=str(users_cache), HOME=str(home))

    assert place.mark.read_text() == ""
    # In a checkout that is not his he can neither start a lab nor prepare an image.
    assert status in (0, 1, 2, 3, 64) or f"'{ROOT}/" in text, text
    assert "Traceback" not in text
