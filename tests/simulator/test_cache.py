"""The cache of simulated machines: what it keeps, and what is never removed from it."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from gpucheck import simulator
from gpucheck.simulator import cache
from gpucheck.simulator.cache import SMALL_BYTES, STAMP, cache_folder, evict, publish, use
from tests.shared import sampled

A, B, C = ("a" * 24, "b" * 24, "c" * 24)
MIB = 1 << 20
DAY_S = 86400.0


@pytest.fixture
def machines(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_folder("machines")


def add(folder, name, *, idle_s=DAY_S, size=MIB):
    """An entry of about this size, last used so long ago."""
    publish(folder / name, lambda partial: (partial / "machine.txt").write_bytes(b"x" * size))
    then = time.time() - idle_s
    os.utime(folder / name / STAMP, (then, then))
    return folder / name


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_entries_used_longest_ago_are_removed_until_the_rest_fits(machines, monkeypatch):
    for name, idle_s in ((A, 2 * DAY_S), (B, 3 * DAY_S), (C, DAY_S)):
        add(machines, name, idle_s=idle_s)

    monkeypatch.setattr(cache, "LIMIT_BYTES", 2 * MIB + MIB // 2)
    evict()
    assert names(machines) == [A, C]
    evict()
    assert names(machines) == [A, C]


def test_an_entry_that_was_used_within_the_hour_stays(machines, monkeypatch):
    add(machines, A)
    add(machines, B)
    assert use(machines / A)

    monkeypatch.setattr(cache, "LIMIT_BYTES", 0)
    evict()
    assert names(machines) == [A]


def test_only_directories_named_as_entries_are_removed(machines, tmp_path, monkeypatch):
    """Names of another form, links and files are not touched, not even where they lead."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / STAMP).write_text("999999999\n")
    (machines / A).symlink_to(elsewhere)
    (machines / B).write_text("a file")
    for name in ("notes", "A" * 24, "a" * 23, "a" * 25, ".hidden"):
        (machines / name).mkdir()
        (machines / name / STAMP).write_text("999999999\n")
        os.utime(machines / name / STAMP, (0, 0))
        os.utime(machines / name, (0, 0))
    before = names(machines)

    monkeypatch.setattr(cache, "LIMIT_BYTES", 0)
    evict()
    assert names(machines) == before
    assert (elsewhere / STAMP).exists()


def test_old_leftovers_are_removed(machines):
    for name in (f".{A}.x1y2z3_4", B, f".{C}.abcdefgh"):
        (machines / name).mkdir()
    old = time.time() - DAY_S
    os.utime(machines / f".{A}.x1y2z3_4", (old, old))
    os.utime(machines / B, (old, old))

    evict()
    assert names(machines) == [f".{C}.abcdefgh"]


def test_an_entry_of_an_earlier_version_is_replaced(machines):
    (machines / A).mkdir()
    (machines / A / "machine.txt").write_text("old")

    assert not use(machines / A)
    publish(machines / A, lambda partial: (partial / "machine.txt").write_text("new"))
    assert use(machines / A)
    assert (names(machines), (machines / A / "machine.txt").read_text()) == ([A], "new")


def test_of_two_writers_one_wins(machines):
    """The second finds the first one's entry where it puts its own."""
    publish(machines / A, lambda partial: publish(machines / A, lambda other: (other / "machine.txt").write_text("1")))

    assert (names(machines), (machines / A / "machine.txt").read_text()) == ([A], "1")


def test_equal_small_files_are_one_file(machines):
    def make(partial):
        for number in range(100):
            (partial / f"cpu{number}").write_text("0-7\n")
        for number in range(2):
            (partial / f"library{number}").write_bytes(b"x" * (SMALL_BYTES + 1))
        (partial / "secret").write_text("0-7\n")
        (partial / "secret").chmod(0o600)
        (partial / "link").symlink_to("cpu0")

    publish(machines / A, make)

    entry = machines / A
    assert len({path.stat().st_ino for path in entry.glob("cpu*")}) == 1
    assert len({path.stat().st_ino for path in entry.glob("library*")}) == 2
    assert (entry / "secret").stat().st_ino != (entry / "cpu0").stat().st_ino
    assert {path.read_text() for path in entry.glob("cpu*")} == {"0-7\n"}
    assert (entry / "link").is_symlink()
    assert int((entry / STAMP).read_text()) < 100 * SMALL_BYTES


OTHER_USER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of another user")


@pytest.fixture
def homes(monkeypatch, tmp_path):
    """Set HOME and the home of the user database; the temporary directory is a directory of its own."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(cache, "_is_root", lambda: False)

    def set_homes(home, database):
        if home is None:
            monkeypatch.delenv("HOME", raising=False)
        else:
            monkeypatch.setenv("HOME", str(home))

        def getpwuid(uid):
            if database is None:
                raise KeyError(uid)
            return SimpleNamespace(pw_dir=str(database))

        monkeypatch.setattr("pwd.getpwuid", getpwuid)

    return set_homes


@pytest.mark.parametrize(
    ("home", "database", "expected"),
    [
        ("real", "other", "real/.cache"),
        (None, "real", "real/.cache"),
        *((home, "real", None) for home in ("", "absent", "/", "relative", "file", "/proc")),
        (None, "absent", None),
        (None, None, None),
    ],
)
def test_the_cache_is_in_a_home_that_exists_or_in_the_temporary_directory(homes, tmp_path, home, database, expected):
    (tmp_path / "real").mkdir()
    (tmp_path / "file").write_text("")

    def place(word):
        return str(tmp_path / word) if word in ("real", "other", "absent", "file") else word

    homes(place(home) if home else home, place(database) if database else database)
    made = cache_folder("machines")

    base = tmp_path / expected if expected else tmp_path / "tmp" / f"gpucheck-{os.getuid()}"
    assert made == base / ("gpucheck/machines" if expected else "machines")
    assert made.is_dir()
    assert not (tmp_path / "absent").exists()
    assert not (tmp_path / "other").exists()


@pytest.fixture
def system(monkeypatch, tmp_path):
    """/var/cache is a folder of the test; without XDG_CACHE_HOME and GPUCHECK_SIMULATOR."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("GPUCHECK_SIMULATOR", "")
    monkeypatch.setattr(cache, "SYSTEM_CACHE", tmp_path / "var-cache")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    cache._say.cache_clear()
    (tmp_path / "var-cache").mkdir()
    (tmp_path / "tmp").mkdir()
    tmp_path.parent.chmod(0o711)
    return tmp_path / "var-cache"


def folder_of(user, path, mode=0o755):
    path.mkdir(parents=True)
    path.chmod(mode)
    os.chown(path, user, user)
    return path


@needs_root
@pytest.mark.parametrize("variable", sampled(["HOME", "XDG_CACHE_HOME"], (1,)))
def test_root_loads_nothing_from_the_cache_of_another_user(
    monkeypatch, system, tmp_path, capfd, variable, path_with_libraries
):
    """As with sudo -E: the planted library would run as root when it is loaded."""
    monkeypatch.setenv("PATH", path_with_libraries)
    home = folder_of(OTHER_USER, tmp_path / "home")
    monkeypatch.setenv(variable, str(home))
    base = home if variable == "XDG_CACHE_HOME" else home / ".cache"
    planted = folder_of(OTHER_USER, base / "gpucheck/machines")

    made = simulator.activate("p100-pcie-x2")

    assert made.parent == system / "gpucheck/machines"
    assert list(planted.iterdir()) == []
    if variable == "XDG_CACHE_HOME":
        assert f"the cache {home} is not used: {home} belongs to user {OTHER_USER}" in capfd.readouterr().err


PLANTED = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void run(void) { FILE *f = fopen(getenv("PROOF"), "w"); if (f) fclose(f); }
"""


@needs_root
@pytest.mark.slow
@pytest.mark.parametrize("how", sampled(["whole cache", "one entry", "the library", "writable"], (3,)))
def test_a_library_that_another_user_planted_is_not_loaded(tmp_path, how, path_with_libraries):
    """The real command as root, on a cache in which another user made or may change the machine that it looks for."""
    cache, proof = tmp_path / "cache", tmp_path / "proof"
    tmp_path.parent.chmod(0o711)
    command = [sys.executable, "-m", "gpucheck", "verify", "--simulate", "p100-pcie-x2", "--level", "quick"]
    environment = {k: v for k, v in os.environ.items() if k != "GPUCHECK_SIMULATOR"}
    environment |= {"XDG_CACHE_HOME": str(cache), "PROOF": str(proof), "PATH": path_with_libraries}

    def verify():
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert verify().returncode == 0
    (entry,) = (cache / "gpucheck/machines").iterdir()
    (library,) = (path for path in (entry / "lib").glob("libnvidia-ml.so.*") if not path.is_symlink())
    source = tmp_path / "planted.c"
    source.write_text(PLANTED)
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", library, source], check=True)
    changed = {"whole cache": cache, "one entry": entry, "the library": library, "writable": library}[how]
    if how == "writable":
        library.chmod(0o777)
    else:
        for path in (changed, *changed.rglob("*")) if changed.is_dir() else (changed,):
            os.chown(path, OTHER_USER, OTHER_USER, follow_symlinks=False)

    done = verify()

    assert done.returncode == 0, done.stderr
    assert "SIMULATED" in done.stdout
    assert not proof.exists(), "code of another user ran as root"


def test_a_cache_made_under_any_umask_is_used_again(monkeypatch, tmp_path, path_with_libraries):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", path_with_libraries)
    monkeypatch.setenv("GPUCHECK_SIMULATOR", "")
    before = os.umask(0o000)
    try:
        made = simulator.activate("no-gpu")
        inode = made.stat().st_ino
        assert simulator.activate("no-gpu").stat().st_ino == inode
    finally:
        os.umask(before)
    open_to_all = [path for path in made.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022]
    assert open_to_all == []
