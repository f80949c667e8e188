"""Every option that takes a file x what is no file: one line and an exit status, in time. For content: tests/fuzz."""

import os
from pathlib import Path

import pytest

from tests.cli.commands import write_site
from tests.forked import gpucheck
from tests.shared import END_S, sampled

READ = ("stack", "check-repositories", "--lock", "lock.yml")
COMMANDS = {
    "topo --import": ("topo", "--import", "FILE"),
    "topo --from": ("topo", "--from", "FILE"),
    "diagnose --observations": ("diagnose", "--observations", "FILE"),
    "diagnose": ("diagnose", "FILE"),
    "verify --expect": ("verify", "--simulate", "h200-x1", "--only", "driver", "--expect", "FILE"),
    "verify --baseline": ("verify", "--simulate", "h200-x1", "--only", "driver", "--baseline", "FILE"),
    "verify --from": ("verify", "--only", "driver", "--from", "FILE"),
    "verify --simulate": ("verify", "--only", "driver", "--simulate", "./FILE"),
    "simulate": ("simulate", "./FILE", "--", "true"),
    "stack resolve --from": ("stack", "resolve", "--from", "FILE"),
    "stack lock --spec": ("stack", "lock", "--spec", "FILE", "--facts", "facts.json", "-o", "-"),
    "stack lock --facts": ("stack", "lock", "--spec", "stack.yml", "--facts", "FILE", "-o", "-"),
    "stack lock -o": ("stack", "lock", "--spec", "stack.yml", "--facts", "facts.json", "-o", "FILE"),
    "stack plan --lock": ("stack", "plan", "--host", "a", "--lock", "FILE"),
    "stack check --lock": ("stack", "check", "--simulate", "h200-x1", "--lock", "FILE"),
    "check-repositories --lock": ("stack", "check-repositories", "--lock", "FILE"),
    "check-repositories --netrc": (*READ, "--netrc", "FILE"),
    "bundle order --lock": ("bundle", "order", "--lock", "FILE", "-o", "orders"),
    "bundle order --facts": ("bundle", "order", "--lock", "lock.yml", "--facts", "FILE", "-o", "orders"),
    "fleet report --labels": ("fleet", "report", "reports", "--labels", "FILE"),
    "fleet report --baseline": ("fleet", "report", "reports", "--baseline", "FILE"),
}
KINDS = ("fifo", "folder", "loop", "missing", "empty", "unreadable", "/dev/zero", "/dev/null")


@pytest.fixture(scope="module")
def place(tmp_path_factory, cache):
    """A folder with honest files for the other options."""
    folder = tmp_path_factory.mktemp("site")
    write_site(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setenv("NO_COLOR", "1")
        words = ("--only", "driver", "--format", "json", "-o", "reports/a.json")
        assert gpucheck("verify", "--simulate", "h200-x1", *words, cwd=folder).returncode == 0
        yield folder


def hostile(folder, kind):
    """The name of a file of this kind in the folder."""
    path = folder / f"{kind.strip('/').replace('/', '-')}.yml"
    path.unlink(missing_ok=True) if not path.is_dir() else None
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir(exist_ok=True)
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind.startswith("/dev/"):
        path.symlink_to(kind)
    elif kind == "unreadable":
        # Readable in no way, also for root: the memory of a process, at address 0.
        path.symlink_to("/proc/self/mem")
    elif kind == "empty":
        path.touch()
    return path.name


# An empty stack.yml leaves every value to gpucheck, and an empty netrc has no credentials.
FINE = {("stack lock --spec", "empty"), ("check-repositories --netrc", "empty")}
PAIRS = [pair for command in COMMANDS for kind in KINDS if (pair := (command, kind)) not in FINE]


def in_sample(number, _):
    """Every command with one kind, the next command with the kind after it. All pairs are tried at night."""
    row, column = divmod(number, len(KINDS))
    return row % len(KINDS) == column


@pytest.mark.parametrize(("command", "kind"), sampled(PAIRS, in_sample))
def test_a_hostile_file_ends_in_one_line(place, command, kind):
    if (command, kind) == ("stack lock -o", "fifo"):
        pytest.skip("not applicable: an output waits for the reader of its FIFO, as every program's does")
    name = hostile(place, kind)
    done = gpucheck(*(word.replace("FILE", name) for word in COMMANDS[command]), cwd=place, timeout_s=END_S)
    error = done.stderr

    assert done.returncode == 64 or (done.returncode in (0, 2) and command == "stack lock -o"), (done.stdout, error)
    assert "Traceback" not in error + done.stdout
    assert len(error) < 1500
    if done.returncode == 64:
        lines = [line for line in error.splitlines() if not line.startswith(("Usage: ", "Try '"))]
        assert len(list(filter(None, lines))) == 1, error
        assert "Error: " in error
        assert Path(name).stem in error
