"""docs/architecture.md is current, and every name in it exists."""

import pkgutil
import re

from tests.architecture_page import PAGE, page
from tests.test_house import PACKAGE

ROOT = PACKAGE.parent
TEXT = PAGE.read_text(encoding="utf-8")


def test_page_is_current():
    """After a change of MAY_IMPORT or a package docstring: python -m tests.architecture_page"""
    assert page() == TEXT


def test_names_and_paths_on_the_page_exist():
    for name in re.findall(r"`(gpucheck(?:\.\w+)+)`", TEXT):
        assert pkgutil.resolve_name(name) is not None
    assert [path for path in re.findall(r"`((?:playbooks|tests)/[\w/.]+)`", TEXT) if not (ROOT / path).exists()] == []
