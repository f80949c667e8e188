"""Components are found by walking: a new component is one module."""

from pathlib import Path

import pytest

from gpucheck.stack import components
from gpucheck.stack.components import BY_NAME, COMPONENTS
from gpucheck.stack.components.base import Component
from gpucheck.stack.spec import SpecFields, StackSpec
from gpucheck.stack.stack_set import StackSet

STACK = Path(components.__file__).parent.parent


def test_component_without_typed_fields_is_in_one_file():
    added = [row.name for row in COMPONENTS if row.default is not None and row.name not in SpecFields.__struct_fields__]
    sources = {path: path.read_text(encoding="utf-8") for path in STACK.rglob("*.py")}
    for name in added:
        assert [path.stem for path, text in sources.items() if name in text] == [name]
        assert name in StackSpec.__struct_fields__
        assert name in StackSet.__struct_fields__


def test_every_module_holds_one_component_of_its_name():
    modules = {path.stem for path in (STACK / "components").glob("*.py")} - {"__init__", "base"}

    assert {row.name for row in COMPONENTS} == modules == set(BY_NAME)


def test_places_and_turns_are_unique():
    assert len({row.place for row in COMPONENTS}) == len(COMPONENTS)
    turns = [row.turn for row in COMPONENTS if row.choose.__func__ is not Component.choose]
    assert len(set(turns)) == len(turns)
    assert all(row.turn > BY_NAME[row.built_for].turn for row in COMPONENTS if row.built_for)


@pytest.mark.parametrize("row", COMPONENTS, ids=lambda row: row.name)
def test_default_in_the_specification_is_the_one_of_the_component(row):
    assert getattr(StackSpec(), row.name, None) == row.default or row.default is None
