"""The planned host, and a PATH of its own, as fixtures."""

import pytest

from tests.playbooks.planned import Machine


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A host that is exactly as its plan wants it."""
    return Machine(tmp_path, monkeypatch)


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A folder that is all of PATH, to put stand-in programs into."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder
