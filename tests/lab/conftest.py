"""One provisioned lab for all end-to-end tests of a session, and its wish."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.e2e import INVENTORY, KEPT, Run, make


@pytest.fixture(scope="session")
def reports(tmp_path_factory) -> Iterator[Path]:
    if not KEPT:
        make("lab-down", tmp_path_factory.mktemp("none"))
    yield tmp_path_factory.mktemp("e2e") / "reports"
    if not KEPT:
        make("lab-down", tmp_path_factory.mktemp("none"))


@pytest.fixture(scope="session")
def first(reports) -> Run:
    return make("provision", reports)


@pytest.fixture
def wish(first) -> Iterator[Path]:
    """The lab's stack.yml, put back afterwards."""
    path = INVENTORY.with_name("stack.yml")
    kept = path.read_text()
    yield path
    path.write_text(kept)
