"""Texts are in plain English: docstrings, comments, messages, tables, playbooks, ``stack.yml``, scripts, C sources."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_docs import BANNED as BANNED_IN_DOCS

ROOT = Path(__file__).parent.parent
BANNED = {
    **BANNED_IN_DOCS,
    r"\bsays?\b": "reports, prints, states",
    r"\bwish(es|ed)?\b": "specification",
    r"\bbeside\b": "in addition to, next to",
    r"\b(last|own|kernel's|its) words?\b": "output, message",
    r"\bstands? out\b|\bsickness\b": "outlier; fault",
    r"\b(blam(e|es|ed|ing)|harm(s|ed|ing)?|accus(e|es|ed|ation))\b": "root cause; slower than",
    r"\bwitness(es)?\b|\bvoices?\b": "evidence; finding",
    r"\bmakers?('s)?\b": "manufacturer, factory",
    r"\b(take|takes|taken|taking|took) over\b": "apply, set",
    r"\b(go|goes|come|comes|came|brings?|brought|puts?|gives?)( \w+)? back\b": "restore, return",
    r"\bgiv(e|es|en|ing) up\b": "timed out",
    r"\bhangs? on (the|a|an|its|different)\b": "is attached to",
    r"\blooks? (what|whether|who|again)\b": "check",
    r"\ball the same\b|\bno wonder\b|\bthe other way round\b": "rewrite",
    r"\bthe site\b": "your site, cluster",
    r"(?-i:(?<!there )\b(is|are) none\b)": "is not, there is no",
    r"\bgoes (on|back) (with|from)\b|\bwhat would go\b": "continues; what would be removed",
    r"\bhas (been )?set aside\b|\bby hand it wants\b|\bmake space\b": "reserved; free space",
    r"\bcannot be told\b|\bdoes not (tell|know it)\b|\bas it was bought\b": "unknown; is not configured; by design",
    r"\blook(s)? (there|at it)\b|\ba person has to\b": "check",
    r"\btake[sn]? (it|that|them) (out|away)\b": "remove",
}
PATTERNS = [(re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in BANNED.items()]
# What tools print and options are named.
QUOTED = re.compile(r"``.*?``|`[^`]*`|\"[^\"]*\"|\bRefusal\b|\bALIKE\b|\bSTAND_INS\b")
TABLES = [
    *("causes.yml", "error_codes.yml", "kernel_messages.yml", "xid.yml", "sxid.yml", "nvlink5.yml"),
    *("messages/*.yml", "codes/*.yml"),
]
TEXTS = {"do", "look", "meaning", "confirm", "remedy", "says", "why", "fix", "reading", "immediate", "later", "means"}
MOST_OF_A_TASK_NAME = 60  # characters
TASK_NAMES = sorted(
    (str(path.relative_to(ROOT)), line[1])
    for path in (ROOT / "playbooks").rglob("*.yml")
    for line in re.finditer(r"^ *- name: (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
)


# Keys and values of contracts, tests of Jinja, and options, values and an exception of the plugins.
CONTRACTS = re.compile(r"\b(state|end_of_life_os): refused?\b|\bis (not )?none\b|: refuse, or allow")
NAMES = re.compile(r"\b[Rr]aises? Refused\b|\bours: of\b|^ *ours:", re.MULTILINE)


def texts(source: Path) -> Iterator[tuple[int, str]]:
    """Every docstring, comment and string with a space, with its first line. Values in f-strings are left out."""
    code = source.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def plugin(source: Path) -> Iterator[tuple[int, str]]:
    """The same without the words of contracts."""
    yield from ((line, CONTRACTS.sub("", NAMES.sub("", text))) for line, text in texts(source))


def lines(source: Path) -> Iterator[tuple[int, str]]:
    yield from enumerate(CONTRACTS.sub("", source.read_text(encoding="utf-8")).splitlines(), start=1)


def values(table: Any) -> Iterator[str]:
    """Every text of a table that people read."""
    if isinstance(table, dict):
        for key, value in table.items():
            if key in TEXTS and isinstance(value, str):
                yield value
            else:
                yield from values(value)
    elif isinstance(table, list):
        for value in table:
            yield from values(value)


def table(source: Path) -> Iterator[tuple[int, str]]:
    yield from enumerate(values(yaml.safe_load(source.read_text(encoding="utf-8"))), start=1)


def comments(source: Path) -> Iterator[tuple[int, str]]:
    """Each comment line with its number: after ``#``, or between the marks of C."""
    code = source.read_text(encoding="utf-8")
    if source.suffix in (".c", ".h"):
        for block in re.finditer(r"/\*.*?\*/", code, re.DOTALL):
            yield from enumerate(block.group().splitlines(), start=code.count("\n", 0, block.start()) + 1)
    else:
        for line in re.finditer(r"(?:^|\s)#(?!!).*", code, re.MULTILINE):
            yield code.count("\n", 0, line.start(0) + 1) + 1, line.group()


def banned(text: str) -> list[str]:
    plain = QUOTED.sub("quoted", text)
    return [f"{m.group()!r} (use: {instead})" for pattern, instead in PATTERNS for m in pattern.finditer(plain)]


def files(*patterns: str) -> list[Path]:
    """Files below the repository, without those that are reached through a link."""
    found = {path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()}
    return sorted(path for path in found if not any(one.is_symlink() for one in (path, *path.parents)))


# How a file is read -> the files.
READ = {
    texts: files("gpucheck/**/*.py"),
    plugin: files("playbooks/**/*.py"),
    lines: files("stack.yml", "playbooks/**/*.yml", "playbooks/ansible.cfg"),
    table: files(*(f"gpucheck/knowledge/{name}" for name in TABLES)),
    comments: [
        path
        for path in files(
            *("docs/integrations/**/*", "contrib/**/*", "images/**/*", "gpucheck/knowledge/**/*.yml"),
            *(f"gpucheck/simulator/**/*.{kind}" for kind in ("yml", "c", "h")),
        )
        if path.suffix not in (".md", ".json", ".txt", ".pyc")
    ],
}


@pytest.mark.parametrize("read", READ, ids=lambda read: read.__name__)
def test_files_are_in_plain_english(read):
    found = [(path, line, word, text) for path in READ[read] for line, text in read(path) for word in banned(text)]
    assert [f"{path.relative_to(ROOT)}:{line}: {word}: {text}" for path, line, word, text in found] == []


NOT_FIRST = ("Ask", "Assert", "Leave", "Let", "Look", "Note", "Prove", "Refuse", "Say", "Tell")


def is_imperative(name: str) -> bool:
    """An assert starts with Verify or Fail if, so nothing proves, refuses, says or looks."""
    form = re.match(r"[A-Z][a-z]+ ?(?!.*\.$)", name) and not re.search(r"\bwhere\b", name)
    return bool(form) and name.split()[0] not in NOT_FIRST and not banned(name)


def test_task_names_are_short_imperatives():
    assert len(TASK_NAMES) > 100
    wrong = [row for row in TASK_NAMES if len(row[1]) > MOST_OF_A_TASK_NAME or not is_imperative(row[1])]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "word"),
    [("The driver says no.", "says"), ("# nobody asked", "nobody"), ("the file tells", "tells"), ("made anew", "anew")],
)
def test_dialect_is_found(text, word):
    assert word in banned(text)[0]


@pytest.mark.parametrize("text", ['it prints "nobody told"', "the option `--wish FILE`", "Values are None."])
def test_quotation_is_allowed(text):
    assert banned(text) == []
