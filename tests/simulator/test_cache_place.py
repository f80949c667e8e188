"""Where the cache of simulated machines is: code is loaded from it, so no other user may have written there."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from gpucheck import simulator
from gpucheck.processes.trust import distrust
from gpucheck.simulator import cache
from gpucheck.simulator.cache import cache_folder
from tests.shared import sampled

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

        monkeypatch.setattr(cache, "pwd", SimpleNamespace(getpwuid=getpwuid))

    return set_homes


@pytest.mark.parametrize(
    ("home", "database", "expected"),
    [
        ("real", None, "real/.cache"),
        ("real", "other", "real/.cache"),
        (None, "real", "real/.cache"),
        ("", "real", "real/.cache"),
        ("absent", "real", "real/.cache"),
        ("/", "real", "real/.cache"),
        ("relative", "real", "real/.cache"),
        ("file", "real", "real/.cache"),
        (None, "absent", None),
        (None, None, None),
        ("/", "/", None),
        ("absent", "absent", None),
        ("/proc", None, None),
        (None, "/proc", None),
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


@needs_root
@pytest.mark.parametrize(
    ("part", "user", "mode", "trusted"),
    [
        ("a", 0, 0o755, True),
        ("a", 0, 0o1777, True),
        ("a", 0, 0o777, False),
        ("a", 0, 0o775, False),
        ("a", OTHER_USER, 0o755, False),
        ("a/b", OTHER_USER, 0o700, False),
        ("a/b", 0, 0o775, False),
        ("a/b", 0, 0o1777, False),
        ("a/b", 0, 0o750, True),
    ],
)
def test_every_part_of_the_path_counts(tmp_path, part, user, mode, trusted):
    folder_of(0, tmp_path / "a/b")
    (tmp_path / part).chmod(mode)
    os.chown(tmp_path / part, user, user)
    (tmp_path / "link").symlink_to(tmp_path / "a")

    assert (distrust(tmp_path / "a/b") is None) is trusted
    assert (distrust(tmp_path / "link/../a/b") is None) is trusted
    assert (distrust(tmp_path / "link/b") is None) is trusted


@needs_root
def test_a_link_of_another_user_is_not_followed(tmp_path):
    folder_of(0, tmp_path / "a")
    (tmp_path / "link").symlink_to("a")
    assert distrust(tmp_path / "link") is None

    os.chown(tmp_path / "link", OTHER_USER, OTHER_USER, follow_symlinks=False)
    assert distrust(tmp_path / "link") == f"{tmp_path / 'link'} belongs to user {OTHER_USER}"


def test_links_in_a_circle_are_an_error(tmp_path):
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(OSError, match="too many links"):
        distrust(tmp_path / "link")


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
