"""What a package transaction would do besides what is planned, read from a simulation of it before anything moves."""

import fnmatch
import re
from typing import NamedTuple

from . import origin
from .call import Refused, attempt, last_words

# apt-get --simulate: "Remv name [1.0]", "Inst name [1.0] (2.0 origin [amd64])"; no brackets for a new package.
APT_ROW = re.compile(
    r"^(?P<verb>Remv|Purg|Inst) (?P<name>[^\s:]+)\S*(?: \[(?P<old>[^\]]+)\])?(?: \((?P<new>\S+))?", re.MULTILINE
)
# Headings of dnf 4's table, LC_ALL=C. Rows are indented by one space; a long name stands on a line of its own.
DNF_HEADINGS = (
    (re.compile(r"^(Installing|Reinstalling)\b.*:$"), "install"),
    (re.compile(r"^Upgrading\b.*:$"), "upgrade"),
    (re.compile(r"^Removing\b.*:$"), "remove"),
    (re.compile(r"^Downgrading\b.*:$"), "downgrade"),
)
DNF_ROW = re.compile(r"^ (?P<name>\S+)(?:\s+\S+\s+(?P<version>\S+).*)?$")
DNF_OBSOLETES = re.compile(r"^\s+replacing\s+(?P<name>\S+)\.(?P<arch>[^\s.]+)\s+(?P<version>\S+)")
DNF_ANSWER = "Operation aborted"
ARRIVES, REPLACES = ("install", "upgrade"), ("upgrade", "downgrade")
# What dnf's cache has is "Total size" alone; numbers count in 1024s: "28 M", "964  " (dnf.cli.format.format_number).
DNF_SIZE = re.compile(r"^Total (download )?size:\s*(?P<number>.*?)\s*$", re.MULTILINE)
DNF_NUMBER = re.compile(r"(?P<count>\d+(\.\d+)?) ?(?P<unit>[kMGT]?)")
UNITS = {"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# apt-get --print-uris: 'address' name bytes digest. A file of this host is no download.
APT_URI = re.compile(r"^'(?!file:|/)[^']*' \S+ (\d+) ", re.MULTILINE)


class Move(NamedTuple):
    """A package that moves. Its versions are empty where there is none, or the simulation has none."""

    verb: str  # install, upgrade, downgrade or remove
    name: str
    before: str
    version: str


def apt_moves(module, words):
    """Return rows of what apt-get would do. words: options and the command. Raises Refused without a solution."""
    status, output, errors = attempt(module, ["apt-get", "--simulate", "--yes", *words])
    if status != 0:
        # Which dependencies are unmet is on stdout, before the error.
        raise Refused(f"apt-get --simulate: exit {status}: {last_words(output + errors)}")
    moves = []
    for row in APT_ROW.finditer(output):
        name, old, new = row.group("name"), row.group("old") or "", row.group("new") or ""
        if row.group("verb") != "Inst":
            moves.append(Move("remove", name, old, ""))
        elif old and new:
            older = attempt(module, ["dpkg", "--compare-versions", new, "lt", old])[0] == 0
            moves.append(Move("downgrade" if older else "upgrade", name, old, new))
        else:
            moves.append(Move("install", name, "", new))
    return moves


def apt_download_bytes(module, words):
    """Return bytes that apt-get would still download, None if unknown. words: options and the command."""
    status, output, _ = attempt(module, ["apt-get", "--print-uris", "--yes", *words])
    return sum(map(int, APT_URI.findall(output))) if status == 0 else None


def dnf_moves(module, words):
    """Return (rows, bytes to download, None if unknown) of what dnf would do. words: as apt_moves. Raises Refused."""
    # Not quiet: the table is what is asked for. --assumeno ends with 1 also where all is well.
    status, output, errors = attempt(module, ["dnf", "--assumeno", *words])
    if status != 0 and DNF_ANSWER not in output + errors:
        raise Refused(f"dnf --assumeno: exit {status}: {last_words(errors, output)}")
    moves, verb = [], ""
    for line in output.splitlines():
        if line and not line[0].isspace():
            verb = next((verb for heading, verb in DNF_HEADINGS if heading.match(line)), "")
            continue
        replaced, row = DNF_OBSOLETES.match(line), DNF_ROW.match(line)
        if verb and replaced:
            moves.append(Move("remove", replaced.group("name"), replaced.group("version"), ""))
        elif verb and row:
            versions = (row.group("version") or "", "")
            moves.append(Move(verb, row.group("name"), *(versions if verb == "remove" else versions[::-1])))
    return moves, dnf_bytes(output, moves)


def dnf_bytes(output, moves):
    """Return the bytes that dnf reports for download; None if it installs a package without a size."""
    sizes = DNF_SIZE.findall(output)
    if not sizes:
        return None if any(row.verb != "remove" for row in moves) else 0
    wanted = [number for download, number in sizes if download]
    number = DNF_NUMBER.match(wanted[0]) if wanted else None
    if wanted and not number:
        return None
    return int(float(number.group("count")) * UNITS[number.group("unit")]) if number else 0


def rows(moves, packages):
    """Each row as a dictionary. packages: {name: version} installed now, for dnf's table, which lacks it."""
    known = {name: version or "" for name, version in packages.items()}
    found = [
        row._replace(before=row.before or known.get(row.name, "")) if row.verb in REPLACES else row for row in moves
    ]
    return [dict(row._asdict()) for row in found]


def besides(moves, planned):
    """Rows of what would be removed or downgraded, without planned names.

    A package that is there in several versions, such as kernel-devel, loses its oldest one when a new one comes.
    """
    known = planned | {row.name for row in moves if row.verb in ARRIVES}
    return [row for row in moves if row.verb not in ARRIVES and row.name not in known]


def sentences(rows):
    return [" ".join([row.verb, row.name, " to ".join(filter(None, row[2:]))]).strip() for row in rows]


def answer(others=(), refused="", unknown="", rows=(), download_bytes=None, not_built=""):
    """Return the part of planned_packages' result about what would move."""
    moves = {"moves": sentences(others), "moves_refused": refused, "moves_unknown": unknown, "not_built": not_built}
    return dict(moves, transaction=list(rows), download_bytes=download_bytes)


def foreign(moves, order):
    """Rows that no operator agreed to: removals and downgrades of packages of others, and changed holds of others.

    order: planned names; held: names that are held on the host; allowed: names or patterns that your configuration
    allows; plan: whose repositories have NVIDIA's packages.
    """
    held = [row for row in moves if row.verb in ARRIVES and row.name in order["held"]]
    found = besides(moves, order["planned"]) + [row._replace(verb="change held") for row in held]
    found = [row for row in found if row.name not in order["planned"]]
    found = [row for row in found if not any(fnmatch.fnmatchcase(row.name, pattern) for pattern in order["allowed"])]
    nvidia = origin.of_nvidia({row.name for row in found}, order["plan"]) if found else set()
    return [row for row in found if row.name not in nvidia]


def refusal(rows):
    return (
        f"the package transaction would also {'; '.join(sentences(rows))}. These packages are not NVIDIA's, and "
        "nothing was installed or removed. If this is intended, allow it by name with packages_allow_changes: "
        f"[{', '.join(sorted({row.name for row in rows}))}]"
    )


def guard(moves, order):
    """Raise Refused for a transaction with a foreign row; order: of planned_packages."""
    found = foreign(moves, order)
    if found:
        raise Refused(refusal(found))
