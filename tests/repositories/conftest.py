"""A publisher whose key signs, and a plan to compare."""

import subprocess
from datetime import datetime, timezone

import pytest

from tests.repositories.mirror import Publisher

NOW = datetime(2025, 11, 23, tzinfo=timezone.utc)


def made(tmp_path_factory, name):
    """A publisher, and the end of the agent that gpg started for it."""
    found = Publisher(tmp_path_factory.mktemp(name) / "gpg")
    yield found
    subprocess.run(["gpgconf", "--homedir", found.home, "--kill", "all"], check=False, capture_output=True)


@pytest.fixture(scope="session")
def publisher(tmp_path_factory):
    yield from made(tmp_path_factory, "publisher")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory):
    yield from made(tmp_path_factory, "stranger")
