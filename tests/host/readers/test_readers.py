"""The readers that gpucheck and the collection share: what they may use, how they reach a host, what they read."""

import ast
import importlib
import os
import sys
from pathlib import Path

import pytest

import gpucheck.host.readers as package
from gpucheck.host.readers.files import LARGEST_BYTES, Unreadable, command, content_of, text
from gpucheck.host.readers.kernels import release_key
from gpucheck.host.readers.packages import dpkg_rows
from gpucheck.host.readers.system import package_family
from tests.playbooks.modules import PLUGINS, shared

HERE = Path(package.__file__).parent
FILES = sorted(HERE.glob("*.py"))
# Functions and methods of the standard library that are newer than Python 3.6, where a reader could want one.
NEWER = {
    "removeprefix",
    "removesuffix",
    "capture_output",
    "dataclass",
    "fromisoformat",
    "missing_ok",
    "prod",
    "is_relative_to",
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_reader_needs_only_python_36_and_its_standard_library(path):
    """They run on managed hosts: EL 8 has Python 3.6 and none of the packages that gpucheck needs."""
    tree = ast.parse(path.read_text(), feature_version=(3, 6))
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    relative = [node.module for node in imports if isinstance(node, ast.ImportFrom) and node.level == 1]
    absolute = [alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names]
    absolute += [node.module or "" for node in imports if isinstance(node, ast.ImportFrom) and node.level == 0]
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg}

    assert {name.split(".")[0] for name in absolute} <= sys.stdlib_module_names - {"__future__", "dataclasses"}
    assert set(relative) <= {other.stem for other in FILES}
    assert not names & NEWER


def test_collection_has_the_readers_of_gpucheck():
    """One copy: a link in the checkout. The module that Ansible imports by its long name works in full."""
    assert (PLUGINS / "module_utils/readers").resolve() == HERE
    for path in FILES[1:]:
        theirs = shared(f"readers.{path.stem}")
        ours = importlib.import_module(f"gpucheck.host.readers.{path.stem}")
        assert vars(theirs).keys() == vars(ours).keys()


# As `sort -V` and rpm order them; the third pair is a kernel of RHEL 9.5 and its first update.
@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("5.15.0-97-generic", "5.15.0-113-generic"),
        ("5.14.0-427.el9.x86_64", "5.14.0-503.el9.x86_64"),
        ("5.14.0-503.el9.x86_64", "5.14.0-503.11.1.el9_5.x86_64"),
        ("6.8.0-60-generic", "6.11.0-9-generic"),
    ],
)
def test_newer_kernel_release_sorts_last(older, newer):
    assert sorted([newer, older], key=release_key) == [older, newer]


@pytest.mark.parametrize(
    ("release", "tools", "family"),
    [
        ({"ID": "sles", "ID_LIKE": "suse"}, ["rpm", "dpkg-query"], "rpm"),
        ({"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, ["dpkg-query"], "rpm"),
        ({"ID": "ubuntu", "ID_LIKE": "debian"}, ["rpm"], "dpkg"),
        ({"ID": "unheard"}, ["rpm"], "rpm"),
        ({"ID": "unheard"}, ["rpm", "dpkg-query"], "dpkg"),
        ({}, [], "dpkg"),
    ],
)
def test_package_family_follows_the_system_then_the_tools(monkeypatch, tmp_path, release, tools, family):
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in tools:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)

    assert package_family(release) == family


def test_dpkg_rows_tell_installed_held_and_interrupted():
    """The first three letters of ``dpkg --list``: selection, state, error."""
    output = "ii \tamd64\ta\t1\nhi \tamd64\tb\t1\nrc \tamd64\tc\t1\niF \tamd64\td\t1\niiR\tamd64\te\t1\n"
    rows = list(dpkg_rows(output))

    assert [row.name for row in rows if row.installed] == ["a", "b", "e"]
    assert [row.name for row in rows if row.held] == ["b"]
    assert [row.name for row in rows if row.unfinished] == ["d", "e"]


def test_programs_speak_english_whatever_the_locale_is(monkeypatch):
    """rpm reports "error:" and "Fehler:"; only one of them is recognized."""
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")

    assert command(["sh", "-c", "echo $LC_ALL"]).strip() == "C"


def test_program_that_fails_or_hangs_is_unreadable():
    with pytest.raises(Unreadable, match="sh: exit 3: no such thing"):
        command(["sh", "-c", "echo no such thing >&2; exit 3"])
    with pytest.raises(Unreadable, match=r"sleep: .*timed out after 0.1 seconds"):
        command(["sleep", "9"], seconds=0.1)
    with pytest.raises(Unreadable, match="no-such-program"):
        command(["no-such-program"])


def test_file_is_read_to_a_limit_and_a_pipe_is_not_waited_for(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(LARGEST_BYTES + 1)
    os.mkfifo(tmp_path / "pipe")

    assert len(content_of(tmp_path / "large") or b"") == LARGEST_BYTES
    assert content_of(tmp_path / "pipe") == b""
    assert text(tmp_path / "absent") is None
