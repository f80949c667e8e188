"""Components are found by walking, and no other file of the stack names one: a new component is one module."""

import ast
from pathlib import Path

import pytest

from gpucheck.stack import components
from gpucheck.stack.components import BY_NAME, COMPONENTS
from gpucheck.stack.components.base import Component
from gpucheck.stack.spec import SpecFields, StackSpec
from gpucheck.stack.stack_set import SetFields, StackSet

STACK = Path(components.__file__).parent.parent
# Everything is chosen for a driver, and its kernel modules belong to it: the search itself is about them.
BASE = {"driver", "kernel_module"}
# The typed fields of what is published (stack.yml and the set), and blocks of stack.yml called like a component.
FIELDS = {
    "spec.py": set(SpecFields.__struct_fields__),
    "stack_set.py": set(SetFields.__struct_fields__),
    "types.py": {"cuda", "cudnn", "nccl", "fabric_manager", "imex"},
    "lock.py": {"imex"},
    "settings/tuning.py": {"acs"},
}
# Rules about drivers, programs and folders speak of the CUDA version that something was built with.
ABOUT_CUDA = {f"rules/{name}.py" for name in ("archive", "code", "driver", "folders", "libraries")} | {"text.py"}


def names_in(source):
    """Identifiers, attributes and string constants of a file, without its docstrings and comments."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        for field in ("id", "attr", "arg", "value"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                yield name


def named_elsewhere():
    """File outside of components/ -> components that it names."""
    known = {row.name for row in COMPONENTS} - BASE
    rest = [path for path in sorted(STACK.rglob("*.py")) if path.parent.name != "components"]
    found = {str(path.relative_to(STACK)): known & set(names_in(path)) for path in rest}
    return {path: names for path, names in found.items() if names}


def test_no_other_file_of_the_stack_names_a_component():
    wrong = {
        path: names - FIELDS.get(path, set()) - ({"cuda"} if path in ABOUT_CUDA else set())
        for path, names in named_elsewhere().items()
    }

    assert {path: names for path, names in wrong.items() if names} == {}


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
