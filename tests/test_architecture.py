"""docs/architecture.md is current, and every name in it exists."""

import pkgutil
import re

import pytest

from tests.architecture_page import PAGE, description, layer, packages, page
from tests.test_house import BELOW_ALL, MAY_IMPORT, PACKAGE, rooms

ROOT = PACKAGE.parent
TEXT = PAGE.read_text(encoding="utf-8")


def test_page_is_current():
    """After a change of MAY_IMPORT or a package docstring: python -m tests.architecture_page"""
    assert page() == TEXT


def test_every_package_is_on_the_page():
    assert {*packages(), *BELOW_ALL, "cli"} == set(rooms())


@pytest.mark.parametrize("package", packages())
def test_package_imports_only_lower_layers(package):
    assert all(layer(below) < layer(package) for below in MAY_IMPORT[package])


@pytest.mark.parametrize("package", [*packages(), "cli"])
def test_package_description_is_one_table_cell(package):
    assert description(package)
    assert "|" not in description(package)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(gpucheck(?:\.\w+)+)`", TEXT))))
def test_name_on_the_page_resolves(name):
    assert pkgutil.resolve_name(name) is not None


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:playbooks|tests)/[\w/.]+)`", TEXT))))
def test_path_on_the_page_exists(path):
    assert (ROOT / path).exists()
