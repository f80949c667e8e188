"""The checks as a Markdown page, made from their docstrings, constants and code: docs/checks.md.

``python -m tests.checks_page`` prints it. Verdicts and causes are those that the code reachable from a check's
``evaluate`` can report; a cause that comes from a table is not among them.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from gpucheck.checks import all_checks
from gpucheck.knowledge import causes as cause_table
from gpucheck.knowledge.codes import code_of, known
from gpucheck.model import Check, Verdict

HEAD = """<!-- Made by: python -m tests.checks_page > docs/checks.md -->
# Checks

`gpucheck verify` runs every check below; `gpucheck verify --only NAME` runs one. A check reads values of the host and
evaluates them without side effects: a recording gives the same findings as the host. Verdicts and causes are those that
the code can report; causes of messages in the kernel log are in `gpucheck/knowledge/kernel_messages.yml` and `xid.yml`.
`gpucheck explain CAUSE` prints the meaning and the fix of a cause.
"""
TABLE = "| check | question | verdicts |\n|---|---|---|"
FOLLOWED = ("gpucheck.checks", "gpucheck.topology")
METHODS = {
    "passes": Verdict.PASS,
    "skips": Verdict.SKIP,
    "unknown": Verdict.UNKNOWN,
    "warns": Verdict.WARN,
    "fails": Verdict.FAIL,
}
MIB = 1 << 20
NUMBER = re.compile(r"[A-Z_0-9]+ = [\d.]")
# Return codes are numbers too, and no thresholds.
CODES = re.compile(r"\bcodes?\b")


class Source(NamedTuple):
    """A module as its source: definitions by name, imported names as (module, name), and its lines."""

    name: str
    defined: dict[str, ast.stmt]
    imported: dict[str, tuple[str, str]]
    lines: list[str]


class Reached(NamedTuple):
    """What a check can report, and the documented numbers that it uses: (name, value, comment)."""

    verdicts: list[Verdict]
    causes: list[str]
    thresholds: list[tuple[str, str, str]]


def page() -> str:
    """Return the page: a table of all checks, then one section per check."""
    checks = all_checks()
    found = {check.name: reached(check) for check in checks}
    lines = [HEAD, TABLE]
    for check in checks:
        verdicts = ", ".join(v.name for v in found[check.name].verdicts)
        lines.append(f"| [{check.name}](#{check.name}) | {_paragraphs(check)[0]} | {verdicts} |")
    for check in checks:
        lines += ["", *_section(check, found[check.name])]
    return "\n".join(lines) + "\n"


def reached(check: Check) -> Reached:
    """Follow the code from the check's evaluate function."""
    nodes = list(_follow(_source(check.evaluate.__module__), check.evaluate.__name__, set()))
    causes, verdicts = cause_table(), set()
    named: set[str] = set()
    thresholds: dict[str, tuple[str, str, str]] = {}
    for source, name, node in nodes:
        verdicts |= set(_verdicts(node))
        constants = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        named |= {value for value in constants if value in causes}
        named |= {cause for value in constants if known(value) and (cause := code_of(value).cause)}
        comment = _comment(source, node)
        value = _number(getattr(import_module(source.name), name, None))
        if isinstance(node, ast.Assign) and value and comment and not CODES.search(comment):
            thresholds[name] = (name, value, comment)
    ordered = [v for v in (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN, Verdict.SKIP, Verdict.PASS) if v in verdicts]
    return Reached(ordered, sorted(named), sorted(thresholds.values()))


@cache
def _source(name: str) -> Source:
    text = Path(str(import_module(name).__file__)).read_text(encoding="utf-8")
    defined: dict[str, ast.stmt] = {}
    imported: dict[str, tuple[str, str]] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            imported |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign):
            targets = (n for target in node.targets for n in ast.walk(target))
            defined |= {n.id: node for n in targets if isinstance(n, ast.Name)}
    return Source(name, defined, imported, text.split("\n"))


def _follow(source: Source, name: str, seen: set[tuple[str, str]]) -> Iterator[tuple[Source, str, ast.stmt]]:
    """Yield a definition and all that it names, in the checks and in the topology."""
    if (source.name, name) in seen:
        return
    seen.add((source.name, name))
    if name in source.imported:
        module, original = source.imported[name]
        if module.startswith(FOLLOWED):
            yield from _follow(_source(module), original, seen)
        return
    node = source.defined.get(name)
    if node is None:
        return
    yield source, name, node
    for used in ast.walk(node):
        if isinstance(used, ast.Name):
            yield from _follow(source, used.id, seen)
        elif isinstance(used, ast.Attribute) and isinstance(used.value, ast.Name):
            module, original = source.imported.get(used.value.id, ("", ""))
            whole = f"{module}.{original}"
            if whole.startswith(FOLLOWED) and whole in sys.modules:
                yield from _follow(_source(whole), used.attr, seen)


def _verdicts(node: ast.AST) -> Iterator[Verdict]:
    """Yield those of the methods of About, and those that are named outside of comparisons."""
    if isinstance(node, ast.Compare):
        return
    if isinstance(node, ast.Attribute) and node.attr in METHODS:
        yield METHODS[node.attr]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Verdict":
        yield Verdict[node.attr]
    for child in ast.iter_child_nodes(node):
        yield from _verdicts(child)


def _comment(source: Source, node: ast.stmt) -> str:
    """Return the comment above an assignment, or above the first of several without a blank line between them."""
    at = node.lineno - 2
    while at >= 0 and NUMBER.match(source.lines[at]):
        at -= 1
    end = at
    while at >= 0 and source.lines[at].startswith("#"):
        at -= 1
    return " ".join(line.removeprefix("#").strip() for line in source.lines[at + 1 : end + 1])


def _number(value: Any) -> str:
    """Return a number for the page; empty for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if isinstance(value, int) and value >= MIB and value % MIB == 0:
        return f"{value // MIB} MiB"
    return f"{value:g}"


def _paragraphs(check: Check) -> list[str]:
    """Return the paragraphs of the docstring of the check's module, each on one line."""
    text = import_module(check.evaluate.__module__).__doc__ or ""
    return [" ".join(part.split()).replace("|", "\\|") for part in text.split("\n\n")]


def _section(check: Check, found: Reached) -> Iterator[str]:
    yield f"## {check.name}"
    for paragraph in _paragraphs(check):
        yield ""
        yield paragraph
    yield ""
    yield f"- Module: `{check.evaluate.__module__.replace('.', '/')}.py`; tags: {', '.join(sorted(check.tags))}"
    yield f"- Verdicts: {', '.join(v.name for v in found.verdicts)}"
    if found.causes:
        yield f"- Causes: {', '.join(f'`{cause}`' for cause in found.causes)}"
    for name, value, comment in found.thresholds:
        yield f"- `{name}` = {value}: {comment}"


if __name__ == "__main__":
    sys.stdout.write(page())
