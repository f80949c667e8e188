"""The expectations of your site, a YAML file: every key is optional, mistakes are reported by line."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from gpucheck.knowledge.strict import InputProblem, Value, did_you_mean, document
from gpucheck.stack.versions import request

SCHEMA = "gpucheck.expectations/1"
MAX_BYTES = 1 << 20
MOST_GPUS, MOST_GBIT = 1024, 100_000
CLASS = re.compile(r"PIX|PXB|PHB|NODE|SYS|NV\d{1,2}")
CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS", "NV#")
COMPUTE_MODES = ("default", "exclusive-process", "exclusive-thread", "prohibited")
ByClass = dict[str, float]
"""A number for each path class; the key ``*`` is every pair."""


class Expectations(msgspec.Struct, frozen=True, kw_only=True):
    """One file: what it states, by key. lines: of every key, by its whole path.

    versions: as in stack.yml, the start of a version, or a range.
    gpus: what every GPU must be; memory, power, NVLinks and PCIe are the least that will do. models: how many there
    must be of each. pcie_generation: what card and slot allow together; an idle link lowers its own.
    pairs: how many GPU pairs there must be of each path class.
    network: how many RDMA devices there must be, and at least how many active ports of each rate (Gb/s).
    floors, ceilings: the least and the most that will do, in the units of their names.
    """

    name: str
    lines: dict[str, int]
    versions: dict[str, str] = {}
    gpus: dict[str, Any] = {}
    pairs: dict[str, int] = {}
    network: dict[str, Any] = {}
    floors: dict[str, ByClass | float] = {}
    ceilings: dict[str, ByClass | float] = {}


def read(content: bytes | str, name: str) -> Expectations:
    """The expectations in a file's content. Raises InputProblem, whose ``inside(name)`` is one line with the place."""
    top = document(
        content, shape="Expectations are a few levels deep", example="Write at least gpus: {count: N} (docs/verify.md)"
    )
    lines: dict[str, int] = {}
    _note_lines(top, lines)
    fields = top.fields(TOP)
    fields.pop("schema", None)
    found = Expectations(name=name, lines=lines, **fields)
    if found == Expectations(name=name, lines=lines):
        raise InputProblem("expects nothing, so it would always pass. Write at least gpus: {count: N}")
    return found


def _note_lines(value: Value, lines: dict[str, int]) -> None:
    if value.is_mapping:
        for _, inner in value.pairs():
            lines[inner.path] = inner.line
            _note_lines(inner, lines)


def _whole(low: int, high: int) -> Callable[[Value], int]:
    return lambda value: value.integer(low, high)


def _version(value: Value) -> str:
    text = value.text().strip()
    try:
        requested = request(text)
    except ValueError as error:
        raise value.problem(str(error)) from None
    if not requested.explicit:
        raise value.problem(f"{text} is not an expectation. Give the start of a version, or a range such as >=570,<590")
    return text


def _name(value: Value) -> str:
    return value.text().strip()


def _counted(value: Value) -> dict[str, int]:
    return {key: inner.integer(0, MOST_GPUS) for key, inner in value.pairs()}


def _ports(value: Value) -> dict[str, int]:
    if not all(key.isdecimal() and 0 < int(key) < MOST_GBIT for key, _ in value.pairs()):
        raise value.problem("a rate is a whole number of Gb/s, as in {400: 8}")
    return _counted(value)


def _class(key: str, value: Value) -> str:
    name = key.upper()
    if not CLASS.fullmatch(name):
        raise value.problem(f"no path class. {did_you_mean(name, CLASSES)}")
    return name


def _pairs(value: Value) -> dict[str, int]:
    return {_class(key, inner): inner.integer(0, MOST_GPUS**2) for key, inner in value.pairs()}


def _by_class(value: Value) -> ByClass:
    """One number for every pair, or one for each class."""
    if value.is_mapping:
        return {_class(key, inner): inner.number() for key, inner in value.pairs()}
    return {"*": value.number()}


Readers = dict[str, Callable[[Value], Any]]
SECTIONS: dict[str, Readers] = {
    "versions": {
        **dict.fromkeys(("driver", "cuda", "torch", "tensorflow"), _version),
        "kernel_module": lambda value: value.word("open", "proprietary"),
    },
    "gpus": {
        "count": _whole(0, MOST_GPUS),
        "model": _name,
        "models": _counted,
        "memory_mib": Value.number,
        "vbios": _name,
        "ecc": Value.flag,
        "mig": Value.flag,
        "persistence": Value.flag,
        "compute_mode": lambda value: value.word(*COMPUTE_MODES),
        "power_limit_w": Value.number,
        "nvlinks": _whole(0, 64),
        "pcie_generation": _whole(1, 8),
        "pcie_width": _whole(1, 32),
    },
    "network": {"devices": _whole(0, MOST_GPUS), "ports": _ports},
    "floors": {
        **dict.fromkeys(("p2p_uni_gb_s", "p2p_bidir_gb_s"), _by_class),
        **dict.fromkeys(("h2d_gb_s", "d2h_gb_s"), Value.number),
    },
    "ceilings": {"p2p_latency_us": _by_class},
}
"""How each key is read, by section."""


def _section(readers: Readers) -> Callable[[Value], Any]:
    return lambda value: value.fields(readers)


TOP: Readers = {
    "schema": lambda value: value.word(SCHEMA),
    "pairs": _pairs,
    **{name: _section(readers) for name, readers in SECTIONS.items()},
}
