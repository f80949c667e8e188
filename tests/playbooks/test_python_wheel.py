"""The wheel for the hosts: built once for each state of the sources, and from nothing else."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from tests.playbooks.modules import action

wheel = action("python_wheel")


@pytest.fixture
def project(tmp_path):
    source = tmp_path / "project"
    (source / "tool/data").mkdir(parents=True)
    (source / "tool/__pycache__").mkdir()
    files = {"pyproject.toml": "[project]\n", "README.md": "x\n", "tool/__init__.py": "", "tool/data/a.yml": "a: 1\n"}
    files |= {
        "tool/__pycache__/__init__.cpython-311.pyc.1403": "junk",
        "tool/old.pyc": "junk",
        "tests.py": "not part of it\n",
    }
    for name, content in files.items():
        (source / name).write_text(content)
    return source


def digest(project: Path) -> str:
    found: str = wheel.digest_of(project, wheel.sources(project, "tool"))
    return found


def test_only_what_goes_into_the_wheel_counts(project):
    assert wheel.sources(project, "tool") == ["pyproject.toml", "README.md", "tool/__init__.py", "tool/data/a.yml"]


def test_every_change_of_the_sources_is_another_digest_and_nothing_else_is(project):
    before = digest(project)
    (project / "tests.py").write_text("changed\n")
    (project / "tool/__pycache__/other.pyc").write_text("changed\n")
    assert digest(project) == before

    (project / "tool/data/a.yml").write_text("a: 2\n")
    changed = digest(project)
    (project / "tool/data/a.yml").rename(project / "tool/data/b.yml")
    assert len({before, changed, digest(project)}) == 3


@pytest.fixture
def run(project, tmp_path, monkeypatch):
    """Ask for the wheel; builds are counted and leave an empty one."""
    builds = []

    def build(source, names, folder):
        builds.append(names)
        Path(folder).mkdir(parents=True)
        (Path(folder) / "tool-1-py3-none-any.whl").touch()

    monkeypatch.setattr(wheel, "build", build)

    def call():
        return wheel.wheel_of(str(project), "tool", str(tmp_path / "wheels"))

    return call, builds


def test_the_same_sources_are_never_built_twice(run, project):
    """The second run of a playbook needs no network."""
    call, builds = run
    first, second = call(), call()
    assert first == second
    assert len(builds) == 1

    (project / "README.md").write_text("y\n")
    assert call()["path"] != first["path"]
    assert len(builds) == 2


def test_a_build_that_fails_and_a_folder_that_is_no_project_are_said(run, project, monkeypatch):
    call, _ = run

    def broken(*_):
        raise RuntimeError("no matching distribution for setuptools")

    monkeypatch.setattr(wheel, "build", broken)
    with pytest.raises(RuntimeError, match=r"the wheel of .*project cannot be built: no matching .* setuptools"):
        call()

    (project / "pyproject.toml").unlink()
    with pytest.raises(RuntimeError, match=r"has no pyproject\.toml"):
        call()


def test_a_real_wheel_is_built_with_no_index_to_ask(project, tmp_path, monkeypatch):
    """An isolated build would fetch a setuptools that nobody pinned, and run it."""
    lines = ["[build-system]", 'requires = ["setuptools>=77"]', 'build-backend = "setuptools.build_meta"', "[project]"]
    lines += ['name = "tool"', 'version = "1"', 'requires-python = ">=3.9"', "[tool.setuptools]", 'packages = ["tool"]']
    (project / "pyproject.toml").write_text("\n".join(lines) + "\n")
    (project / "requirements.lock").write_text("click==8.1\n")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "")

    found = wheel.wheel_of(str(project), "tool", str(tmp_path / "wheels"))

    assert hashlib.sha256(Path(found["path"]).read_bytes()).hexdigest() == found["sha256"]
    assert found["python_minimum"] == "3.9"
    assert Path(found["lock"]).read_text() == "click==8.1\n"
    assert "tool/__init__.py" in zipfile.ZipFile(found["path"]).namelist()
