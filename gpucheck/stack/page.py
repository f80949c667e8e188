"""Generate docs/stack-rules.md: statements from the docstrings of the rules, sources from the tables."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator

from gpucheck.knowledge import tables
from gpucheck.stack import components, rules

STATEMENT = re.compile(r"\b(R\d+): ")
HEAD = """<!-- Made by: gpucheck stack rules -o docs/stack-rules.md -->
# Rules of the stack

Every set that `gpucheck stack` prints satisfies these rules. Every conflict names the rule that forbids a set and the
two facts that contradict each other. `gpucheck stack resolve --want COMPONENT=VERSION` shows
whether a version is possible, and if not, why. Tables as of {as_of}.
"""


def rules_page() -> str:
    """Return the page as Markdown. Raises KnowledgeError for an invalid table."""
    sentences = statements()
    lines = [HEAD.format(as_of=tables.operating_systems().as_of)]
    for rule, row in tables.rules().items():
        lines += [f"## {rule}: {row.title}", ""]
        lines += [f"- {sentence} (`{where}`)" for where, sentence in sentences[rule]]
        note = f" ({row.note})" if row.note else ""
        lines += ["", f"Source{note}: {'; '.join(map(_source, row.source))}."]
        lines += [f"Data: {', '.join(f'`gpucheck/knowledge/{name}.yml`' for name in row.tables)}.", ""]
    return "\n".join(lines)


def statements() -> dict[str, tuple[tuple[str, str], ...]]:
    """Return the statements of the docstrings by rule: the function, and its statement in one line."""
    found: dict[str, list[tuple[str, str]]] = {}
    for rule, where, sentence in _statements():
        found.setdefault(rule, []).append((where, sentence))
    return {rule: tuple(rows) for rule, rows in found.items()}


def _statements() -> Iterator[tuple[str, str, str]]:
    packages = (rules, components)
    names = [f"{package.__name__}.{row.name}" for package in packages for row in pkgutil.iter_modules(package.__path__)]
    for module in map(importlib.import_module, names):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ != module.__name__:
                continue
            _, *parts = STATEMENT.split(inspect.getdoc(function) or "")
            for rule, text in zip(parts[::2], parts[1::2], strict=True):
                sentence = " ".join(text.split())
                yield rule, name, sentence[:1].upper() + sentence[1:]


def _source(identifier: str) -> str:
    source = tables.sources()[identifier]
    what = " ".join(source.what.split()).rstrip(".")
    return f"[{what}]({source.url})" if source.url else what
