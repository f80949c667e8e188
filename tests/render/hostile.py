"""A value of any struct of the model with hostile text in every string that a host, a file or a tool can choose."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect

from gpucheck.model import Verdict

FORGED = "PASS  99 hosts"
EVIL = (
    f"x\x1b]0;owned\x07\x1b[31m\x1b[2J\x9b2J\r{FORGED}\n{FORGED}\u2028{FORGED}\u202e\u2066\u200b\ufeff\0\x7f"
    "|'\"<b>]]>{{7*7}}[red]"
)
COLOR = re.compile(r"\x1b\[(?![5-9]m)[0-9;]*m")
RAW = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff\ud800-\udfff]"
)
# What gpucheck itself chooses from a fixed set, by the name of the field.
FIXED = {"cls": "SYS", "matrix": "SYS", "ancestors": "SYS", "classes": "SYS", "peers": "SYS", "phase": "load"}
FIXED |= {"started": "2026-11-21T16:00:00+00:00", "recorded": "2026-11-21T16:00:00+00:00", "at": "2026-11-21T16:00:00Z"}
FIXED |= {"a": "GPU0", "b": "GPU0", "kind": "gpu"}


def raw(output: str) -> list[str]:
    """What of it a terminal would obey, or a reader would take for a line of gpucheck's."""
    found = RAW.findall(COLOR.sub("", output))
    return found + [
        line for line in re.split(r"[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", output) if line.startswith(FORGED)
    ]


def hostile(cls: type, **fields: Any) -> Any:
    """A value of the type. fields: those that are given."""
    return msgspec.structs.replace(_value(inspect.type_info(cls), ""), **fields)


def _value(kind: Any, name: str) -> Any:
    return MAKE[type(kind)](kind, name)


def _chosen(kind: Any, name: str) -> Any:
    return _value(next((one for one in kind.types if not isinstance(one, inspect.NoneType)), None), name)


MAKE: dict[Any, Callable[[Any, str], Any]] = {
    inspect.StructType: lambda kind, _: kind.cls(
        # A diagnosis holds those of several hosts, which hold none.
        **{field.name: _value(field.type, field.name) for field in kind.fields if field.name != "machines"}
    ),
    inspect.StrType: lambda _, name: FIXED.get(name, EVIL),
    inspect.AnyType: lambda *_: EVIL,
    inspect.LiteralType: lambda kind, _: kind.values[0],
    inspect.EnumType: lambda kind, _: Verdict.FAIL if kind.cls is Verdict else next(iter(kind.cls)),
    inspect.BoolType: lambda *_: True,
    inspect.IntType: lambda *_: 0,
    inspect.FloatType: lambda *_: 1.0,
    inspect.VarTupleType: lambda kind, name: (_value(kind.item_type, name),),
    inspect.TupleType: lambda kind, name: tuple(_value(item, name) for item in kind.item_types),
    inspect.ListType: lambda kind, name: [_value(kind.item_type, name)],
    inspect.DictType: lambda kind, name: {_value(kind.key_type, name): _value(kind.value_type, name)},
    inspect.UnionType: _chosen,
}
