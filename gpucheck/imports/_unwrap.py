"""Strip what surrounds the lines of a paste: quotes, fences, prefixes of launchers, entities, Markdown tables.

The number of lines stays, so that every message can name the line of the input.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from gpucheck.imports._text import regex

MOST_SAMPLED = 4000

QUOTE = regex(r"(?: {0,3}> ?){1,8}")
ENTITY = regex(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,6}|#x[0-9a-fA-F]{1,6});")
FENCE = regex(r"\s*(?:`{3,}|~{3,})[\w+.{}= -]{0,40}\s*$")
TAG = r"</?(?:pre|code|details|summary|p|br|div|blockquote)\b[^<>]{0,200}>"
TAGS = regex(rf"\s*(?:{TAG}\s*){{1,4}}")
LAST_TAGS = regex(rf"(?:{TAG}\s*){{1,4}}$")
RULE = regex(r"\s*\|?\s*:?-{3,}:?\s*(?:\|\s*:?-{3,}:?\s*)+\|?\s*$")


# Letters that are read in place of digits from a picture: GPUO, GPUl, O-23.
MISREAD = regex(r"(?<=\bGPU)[OolI](?![A-Za-z0-9])|(?<![A-Za-z])[OolI](?=[-,]\d)")
DIGITS = {"O": "0", "o": "0", "l": "1", "I": "1"}


class _Prefix(NamedTuple):
    """What a launcher or a collector writes before every line. most_lines: it needs most lines of the text to have it,
    since a table of some tool may look the same. Groups: label parts the streams, host is the machine."""

    pattern: re.Pattern[str]
    most_lines: bool = False


ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
# Their lines mean more with the program's name; kinds of their own read them.
DAEMONS = r"(?!kernel\b|nv|dcgm|systemd|slurm|opensm|rasdaemon|mcelog|dockerd|containerd|kubelet)"
# Text before a colon that looks like the name of a host but is not.
NO_HOSTS = r"(?!(?:GPU|CPU|NIC|Link|Device|[a-z_]{0,9}rank|cuda|eth|ib|port|nvidia|mlx\d_)_?\d{1,4}:)"
PREFIXES = (
    # mpirun --tag-output: [1,3]<stdout>:, of Open MPI 5: [prterun-host-123@1,3]<stdout>:
    _Prefix(
        regex(
            r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4} ?)?"
            r"\[(?:[\w.-]{1,100}@)?(?P<label>\d{1,6},\d{1,6})\]<(?:stdout|stderr|stddiag)>: ?"
        )
    ),
    # kubectl logs --prefix: [pod/name/container]
    _Prefix(regex(r"\[(?P<label>pod/[\w.-]{1,200}/[\w.-]{1,100})\] ?")),
    # Ray, vLLM: (Worker pid=12, ip=10.0.0.1), (EngineCore_DP0 pid=7)
    _Prefix(regex(r"\((?P<label>(?:[\w.:/-]{1,80} ){0,3}pid=\d{1,9}(?:, ip=[\d.a-f:]{1,45})?)\) ?")),
    # torchrun: [rank3]:, [default3]:
    _Prefix(regex(r"\[(?P<label>(?:rank|default)\d{1,6})\]:? ?")),
    # containers' own log files: 2024-05-01T10:00:00.123Z stdout F
    _Prefix(regex(rf"{ISO}(?:\.\d{{1,9}})?(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ")),
    # kubectl logs --timestamps; runners of GitHub, Azure DevOps, GitLab (with 00O) and Jenkins
    _Prefix(regex(rf"{ISO}\.\d{{5,9}}Z(?: \d\d[OE][ +]?)? ?")),
    _Prefix(regex(rf"\[{ISO}\.\d{{3}}Z\] ?")),
    # journalctl, syslog: Nov 22 10:00:00 host program[12]:
    _Prefix(
        regex(
            rf"(?:[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{{1,9}})?|{ISO}(?:\.\d{{1,9}})?(?:Z|[+-]\d\d:?\d\d))"
            rf" (?P<host>[\w.-]{{1,100}}) (?P<label>{DAEMONS}[\w./@-]{{1,80}}(?:\[\d{{1,10}}\])?):(?: |$)"
        ),
        most_lines=True,
    ),
    # docker compose: name-1  |
    _Prefix(regex(r"(?P<label>[A-Za-z][\w.-]{0,62}) {1,40}\|(?: |$)"), most_lines=True),
    # srun --label: 12: and a blank, which the bus numbers of lspci do not have after them
    _Prefix(regex(r" {0,4}(?P<label>\d{1,5}):(?: |$)"), most_lines=True),
    # pdsh, clush, ansible: host:
    _Prefix(
        regex(rf"{NO_HOSTS}(?P<host>(?P<label>[A-Za-z][\w-]{{0,62}}\d(?:\.[\w.-]{{1,100}})?)):(?: |$)"),
        most_lines=True,
    ),
)
ENOUGH = 0.8


class Lines(NamedTuple):
    """The lines of a paste, unwrapped. labels: the stream that a line belongs to, hosts: the machine that printed it,
    each by index and only where a prefix names it. wrapping: indices of lines that are a fence or a tag alone.
    """

    text: list[str]
    labels: dict[int, str]
    hosts: dict[int, str]
    wrapping: list[int]


def unwrapped(lines: Sequence[str]) -> Lines:
    """The same number of lines, stripped."""
    text = _unquoted(list(lines))
    wrapping = []
    for at, line in enumerate(text):
        if "<" in line or "```" in line or "~~~" in line:
            text[at], is_empty = _without_markup(line)
            if is_empty:
                wrapping.append(at)
    labels: dict[int, str] = {}
    hosts: dict[int, str] = {}
    for prefix in _in_use(text):
        _take_off(prefix, text, labels, hosts)
    return Lines(_dedented(_tables_as_text(_as_digits(text))), labels, hosts, wrapping)


def _as_digits(lines: list[str]) -> list[str]:
    """Lines that name a GPU by a letter, as text from a picture does, with digits."""
    if not any(f"GPU{letter}" in line for letter in DIGITS for line in lines):
        return lines
    return [
        MISREAD.sub(lambda m: DIGITS[m[0]], line) if re.search(r"\bGPU[OolI0-9]\b", line) else line for line in lines
    ]


def _dedented(lines: list[str]) -> list[str]:
    least = min((len(line) - len(line.lstrip(" ")) for line in lines if line and not line.isspace()), default=0)
    return [line[least:] for line in lines] if least > 1 else lines


def _unquoted(lines: list[str]) -> list[str]:
    """Without marks of mail and Markdown; entities as characters."""
    if any("&" in line for line in lines):
        import html

        lines = [html.unescape(line).replace("\xa0", " ") if ENTITY.search(line) else line for line in lines]
    if any(line.lstrip().startswith(">") for line in lines):
        lines = [line[match.end() :] if (match := QUOTE.match(line)) else line for line in lines]
    return lines


def _without_markup(line: str) -> tuple[str, bool]:
    """The line without fences and tags of a page at its ends; whether nothing is left."""
    if FENCE.match(line):
        return "", True
    begin = TAGS.match(line)
    rest = line[begin.end() :] if begin else line
    if rest.rstrip().endswith(">"):
        rest = LAST_TAGS.sub("", rest)
    return rest, rest != line and not rest.strip()


def _in_use(lines: list[str]) -> list[_Prefix]:
    filled = [line for line in lines if line.strip()]
    sample = filled[:: max(1, len(filled) // MOST_SAMPLED)]
    found = []
    for prefix in PREFIXES:
        count = sum(prefix.pattern.match(line) is not None for line in sample)
        if count >= 2 if not prefix.most_lines else count >= max(3, ENOUGH * len(sample)):
            found.append(prefix)
            sample = [line[match.end() :] if (match := prefix.pattern.match(line)) else line for line in sample]
    return found


def _take_off(prefix: _Prefix, text: list[str], labels: dict[int, str], hosts: dict[int, str]) -> None:
    names = prefix.pattern.groupindex
    known: dict[str, str] = {}  # one string for each name, however many lines have it
    for at, line in enumerate(text):
        match = prefix.pattern.match(line)
        if match is None:
            continue
        text[at] = line[match.end() :]
        if "label" in names:
            labels[at] = known.setdefault(match["label"], match["label"])
        if "host" in names:
            host = match["host"].partition(".")[0]
            hosts[at] = known.setdefault(host, host)


def _tables_as_text(lines: list[str]) -> list[str]:
    """Tables of Markdown as the tools print them: cells parted by tabs, no bars, no emphasis."""
    if not any("|" in line for line in lines):
        return lines
    rules = [at for at, line in enumerate(lines) if "--" in line and "|" in line and RULE.match(line)]
    done = -1
    for at in rules:
        if at == 0 or "|" not in lines[at - 1] or at <= done:
            continue
        lines[at - 1], lines[at] = _cells(lines[at - 1]), ""
        row = at + 1
        while row < len(lines) and "|" in lines[row]:
            lines[row] = _cells(lines[row])
            row += 1
        done = row - 1
    return lines


def _cells(line: str) -> str:
    cells = (re.sub(r"\*\*|__|`", "", cell).strip() for cell in line.strip().strip("|").split("|"))
    return "\t".join(cells)
