"""The planned host as a fixture."""

import pytest

from tests.playbooks.planned import Machine


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A host that is exactly as its plan wants it."""
    return Machine(tmp_path, monkeypatch)
