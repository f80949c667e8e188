"""Whatever a neighbour uses up, a healthy host does not fail: resource x command, the resource really gone."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from gpucheck.processes.environment import python_module
from tests.shared import END_S, sampled

# The wall clock, as settimeofday changes it: the kernel's monotonic clock does not jump.
CLOCK = Path(__file__).with_name("jumping_clock.c")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("prlimit") is None,
        reason="full file systems of its own, limits and other users need root, unshare and prlimit",
    ),
]
USER = 61234
# Reads the interpreter wherever root keeps it; root itself has no limit of processes.
AS_USER = (
    f"setpriv --reuid={USER} --regid={USER} --clear-groups --inh-caps=+dac_read_search "
    "--ambient-caps=+dac_read_search --bounding-set=-all,+dac_read_search"
)
# In a mount namespace; D is an empty directory, COMMAND what runs.
TMP = "mount -t tmpfs -o {} none $D && export TMPDIR=$D; exec COMMAND"
SHM = "mount -t tmpfs -o {} none /dev/shm; exec COMMAND"
RESOURCES = {
    "small /tmp": TMP.format("size=20k"),
    "few inodes in /tmp": TMP.format("nr_inodes=9"),
    "full /dev/shm": SHM.format("size=64k").replace("; exec", "; head -c 100k /dev/zero >/dev/shm/x; exec"),
    "no inodes in /dev/shm": SHM.format("nr_inodes=1"),
    **{f"{number} processes": f"exec {AS_USER} prlimit --nproc={number} COMMAND" for number in (1, 4, 8)},
    **{f"{number} files": f"exec prlimit --nofile={number} COMMAND" for number in (12, 20, 40)},
    **{f"{number} MB of memory": f"exec prlimit --as={number}000000 COMMAND" for number in (200, 600)},
    **{f"files of {number} bytes": f"exec prlimit --fsize={number} COMMAND" for number in (0, 8192)},
    "stack of 256 KiB": "exec prlimit --stack=262144 COMMAND",
    "no locked memory": "exec prlimit --memlock=0 COMMAND",
    "jumping clock": f"cc -shared -fPIC -o $D/clock.so {CLOCK} && export LD_PRELOAD=$D/clock.so; exec COMMAND",
}
P100 = "--simulate p100-pcie-x2"
COMMANDS = {
    "verify quick": f"verify {P100} --level quick",
    "verify": f"verify {P100}",
    "smoke": "smoke --framework torch --steps 10",
    "bandwidth": f"bandwidth {P100}",
    "bandwidth of CPUs": "bandwidth --devices cpu,cpu",
    "compute": f"compute {P100}",
    "compute on CPUs": "compute --devices cpu,cpu",
    "burn-in": f"compute --level burn-in --duration 10m {P100} --state STATE",
    "collectives": f"collectives {P100} --sizes 8K",
}
# The reasons that speak of the host's resources.
CAUSES = {"host-resources", "rank-killed", "shm-too-small"}
QUICK = ("verify quick", "bandwidth", "burn-in")
ALL = [(resource, command) for resource in RESOURCES for command in COMMANDS]


def in_sample(number, _):
    """Every resource with one of the quick commands, and what once failed a healthy host."""
    row, _ = divmod(number, len(COMMANDS))
    resource, command = ALL[number]
    return command == QUICK[row % 3] or (resource, command) in {("small /tmp", "smoke"), ("600 MB of memory", "smoke")}


@pytest.fixture(scope="module")
def caches(tmp_path_factory, cache):
    """The cache of each user, with the machine: it is not the simulator that is tested."""
    users = tmp_path_factory.getbasetemp() / "users-cache"
    if not users.exists():
        users.mkdir()
        os.chown(users, USER, USER)
    words = [*python_module("gpucheck"), "bandwidth", *P100.split()]
    for folder, before in ((cache, ()), (users, AS_USER.split())):
        subprocess.run([*before, *words], env=environment(folder), check=True, capture_output=True)
    return cache, users


def environment(cache):
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("GPUCHECK", "CUDA", "TMP"))}
    return kept | {"XDG_CACHE_HOME": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.parametrize(("resource", "command"), sampled(ALL, in_sample))
def test_a_healthy_host_never_fails(tmp_path, caches, resource, command):
    if shutil.which("cc") is None and resource == "jumping clock":
        pytest.skip("no C compiler")
    script = RESOURCES[resource]
    root, user = caches
    folder, out = tmp_path / "d", tmp_path / "out"
    for place in (folder, out):
        place.mkdir()
        if "setpriv" in script:
            os.chown(place, USER, USER)
    command_line = COMMANDS[command].replace("STATE", str(out / "state")).split()
    words = shlex.join([*python_module("gpucheck"), *command_line, "--format", "json"])
    script = script.replace("COMMAND", words)
    made = environment(user if "setpriv" in script else root) | {"D": str(folder)}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], env=made, cwd="/", capture_output=True, text=True, timeout=END_S,
        check=False,
    )  # fmt: skip

    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 3, 70, 74), (done.stdout[-3000:], done.stderr)
    if done.returncode in (70, 74):  # not even a report could be made: its one line names the host, not a defect
        named = ("operating system rejected", "memory limits", "written", "not writable", "No space left on device")
        assert any(words in done.stderr for words in named), done.stderr
        assert "defect" not in done.stderr
    elif done.stdout:
        holds_no_accusation(json.loads(done.stdout))


def holds_no_accusation(report):
    """No FAIL, no support case; what is unknown is the site's to free."""
    assert report["seconds"] >= 0
    loud = [finding for finding in report["findings"] if finding["verdict"] not in ("pass", "skip")]
    assert [finding for finding in loud if finding["verdict"] == "fail"] == []
    assert [finding for finding in loud if finding["action"] == "contact-support"] == []
    unknown = [finding for finding in loud if finding["verdict"] == "unknown"]
    named = [finding for finding in unknown if finding["owner"] == "site" and finding["cause"] in CAUSES]
    assert bool(named) == bool(unknown), unknown
