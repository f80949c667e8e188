"""gpucheck simulate --mount: every program sees the machine, and the host is as it was."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpucheck import simulator
from gpucheck.simulator import mount
from tests import forked
from tests.shared import END_S

pytestmark = pytest.mark.slow

IMPORT = "import ctypes, os, pathlib, socket, sys; from gpucheck.simulator.mount import enter"
ENTER = f"{IMPORT}; enter(pathlib.Path(sys.argv[1]))"
FILES = ("sys/class/dmi/id/sys_vendor", "proc/driver/nvidia/version", "proc/cmdline", "dev/kmsg")
OURS = ("/sys/new", "/proc/driver/new", "/dev/gpucheck/machine/new", "/sys/class/dmi/id/sys_vendor")
NOBODY = 65534
STAYS_DUMPABLE = 4  # PR_SET_DUMPABLE: what changes its user loses it, and with it its own files in /proc


def python(code, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=END_S, **options
    )


@pytest.fixture(scope="module")
def machine(cache):
    """The directory of a machine that any user may read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            directory = Path(folder, "machine")
            simulator.make(simulator.load("p100-pcie-x2"), directory, ["xid:gpu=1,code=79"], ())
            if python(ENTER, directory).returncode:
                pytest.skip("this system permits no private mount namespace")
            yield directory


@pytest.fixture
def simulate(monkeypatch, cache):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))

    def run(script, *options, profile="p100-pcie-x2"):
        return forked.gpucheck("simulate", profile, *options, "--mount", "--", "sh", "-c", script)

    return run


def host():
    return Path("/proc/self/mountinfo").read_text(), sorted(Path("/sys").iterdir()), sorted(Path("/dev").iterdir())


def test_a_program_reads_the_files_of_the_machine(machine):
    done = python(f"{ENTER}; os.execlp('cat', 'cat', *sys.argv[2:])", machine, *(f"/{path}" for path in FILES))

    assert done.stdout == "".join((machine / "root" / path).read_text() for path in FILES)


def test_real_lspci_reads_the_links_of_the_machine(machine, simulate):
    if not any(Path(folder, "lspci").exists() for folder in os.get_exec_path()):
        pytest.skip("no lspci")
    done = simulate("lspci -vv -d 10de:", "--fault", "pcie-width:gpu=1,width=8")

    states = [line.split("Width ")[1] for line in done.stdout.splitlines() if "LnkSta:" in line]
    assert states == ["x16", "x8 (downgraded)"]


def test_gpus_of_the_host_and_its_network_are_not_there(simulate):
    done = simulate("ls /dev; ls /proc/driver/nvidia/gpus; cat /proc/self/net/dev")

    assert "nvidia1" in done.stdout.split()
    assert "nvidia2" not in done.stdout.split()
    assert [line.split(":")[0].strip() for line in done.stdout.splitlines() if ":  " in line] == ["lo"]


def test_a_program_talks_to_itself_over_the_network(machine):
    code = "s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()); print('ok')"

    assert python(f"{ENTER}; {code}", machine).stdout == "ok\n"


def test_a_program_cannot_change_the_machine(simulate):
    done = simulate("\n".join(f"echo changed > {path}" for path in OURS))

    assert done.returncode != 0
    assert done.stderr.count("Read-only file system") == len(OURS)


@pytest.mark.parametrize("ending", ["exit 3", "kill -KILL $$", "sleep 100 & kill -SEGV $$"])
def test_host_is_as_it_was_however_the_program_ends(simulate, ending):
    before = host()
    done = simulate(ending)

    assert done.returncode in (3, -signal.SIGKILL, -signal.SIGSEGV)
    assert host() == before


def test_what_is_not_simulated_is_listed(simulate):
    done = simulate("true")

    listed = next(line for line in done.stderr.splitlines() if "not simulated" in line)
    assert all(name in listed for name in mount.NOT_SHOWN)
    assert all(Path(name).exists() != (f" {name}" in listed) for name in ("/proc/modules", "/lib/modules"))


def test_another_user_needs_no_root(machine):
    """In a user namespace, in which this user is still itself, and may mount nothing in what it started."""
    if os.geteuid() != 0:
        pytest.skip("every other test is one of another user")
    become = f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); ctypes.CDLL(None).prctl({STAYS_DUMPABLE}, 1)"
    code = f"{IMPORT}; {become}; enter(pathlib.Path(sys.argv[1])); print(os.geteuid(), flush=True)"
    code += "; os.execlp('sh', 'sh', '-c', 'ls /dev; cat /proc/driver/nvidia/version; umount /sys')"
    done = python(code, machine)

    assert done.stdout.startswith(f"{NOBODY}\n")
    assert "nvidia1" in done.stdout.split()
    assert (machine / "root/proc/driver/nvidia/version").read_text() in done.stdout
    assert "umount" in done.stderr


def test_where_no_namespace_is_permitted_the_setting_is_named(simulate, monkeypatch, cache):
    """A seccomp filter of a container engine, or a sysctl."""
    code = """if True:
        import os, sys
        from gpucheck.simulator import mount
        def refuse(name, *arguments, about=None):
            raise PermissionError(1, "Operation not permitted", about or name)
        mount._call = refuse
        from gpucheck.cli import main
        sys.argv = ["gpucheck", "simulate", "no-gpu", "--mount", "--", "true"]
        main()
    """
    done = python(code, env={**os.environ, "XDG_CACHE_HOME": str(cache)})

    assert done.returncode == 64
    assert "--mount: unshare: Operation not permitted. Run it as root" in done.stderr
    assert "Traceback" not in done.stderr
