"""Python children import from where this process does, and nothing from the directory they are started in."""

import os
import subprocess
import sys

import pytest

from gpucheck.processes.capture import capture
from gpucheck.processes.child import Child
from gpucheck.processes.environment import independent, python_module
from gpucheck.processes.group import Group

CHECK = "import os, json, runpy; print(os.getcwd(), json.__file__)"


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """The working directory, in which every module that a child imports first has a namesake."""
    for name in ("json", "runpy", "msgspec", "gpucheck"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'a').write('{name} ')")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / "mark").exists()


def test_a_module_is_not_taken_from_the_working_directory(hostile):
    done = subprocess.run([*python_module("gpucheck"), "-V"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("gpucheck, version")


def test_the_package_is_found_where_it_is_not_installed(hostile):
    command = [sys.executable, "-I", "-S", *python_module("gpucheck.processes")[1:]]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr.endswith(
        "gpucheck.processes.__main__; 'gpucheck.processes' is a package and cannot be directly executed\n"
    )


def test_a_captured_program_is_not_either(hostile):
    done = capture([sys.executable, "-c", CHECK], 60.0)
    assert done.status == 0, done.stderr
    assert done.stdout.decode().split()[0] == "/"


def test_a_child_runs_elsewhere_and_a_named_folder_is_kept(hostile, tmp_path):
    child = Child(
        [sys.executable, "-c", "import os, sys; os.write(int(sys.argv[1]), os.getcwd().encode())"], os.environ
    )
    assert child.group.wait(60.0) == 0
    child.end()
    own = Group([sys.executable, "-c", "import os; raise SystemExit(os.getcwd() != '/usr')"], os.environ, folder="/usr")
    assert own.wait(60.0) == 0
    own.reap()


def test_relative_paths_of_the_caller_stay_the_callers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = independent({"PYTHONPATH": "lib::/opt/x:", "GPUCHECK_SIMULATOR": "machine", "HOME": "home"})
    assert made == {"PYTHONPATH": f"{tmp_path}/lib:/opt/x", "GPUCHECK_SIMULATOR": f"{tmp_path}/machine", "HOME": "home"}
    assert independent({"PATH": "/bin"}) == {"PATH": "/bin"}
