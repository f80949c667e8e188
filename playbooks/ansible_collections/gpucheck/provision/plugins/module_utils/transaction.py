"""What a package transaction would do besides what is planned, read from a simulation of it before anything moves.

A row of moves is (verb, name, words): verb is install, upgrade, remove or downgrade; words are the versions, for a
message: ``1.0``, or ``1.0 to 2.0``.
"""

import fnmatch
import re

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
ARRIVES = ("install", "upgrade")
# What dnf's cache has is "Total size" alone; numbers count in 1024s: "28 M", "964  " (dnf.cli.format.format_number).
DNF_SIZE = re.compile(r"^Total (download )?size:\s*(?P<number>.*?)\s*$", re.MULTILINE)
DNF_NUMBER = re.compile(r"(?P<count>\d+(\.\d+)?) ?(?P<unit>[kMGT]?)")
UNITS = {"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# apt-get --print-uris: 'address' name bytes digest. A file of this host is no download.
APT_URI = re.compile(r"^'(?!file:|/)[^']*' \S+ (\d+) ", re.MULTILINE)


def apt_moves(module, words):
    """Return rows of what apt-get would do. words: options and the command. Raises Refused without a solution."""
    status, output, errors = attempt(module, ["apt-get", "--simulate", "--yes", *words])
    if status != 0:
        # Which dependencies are unmet is on stdout, before the error.
        raise Refused("apt-get --simulate: exit {}: {}".format(status, last_words(output + errors)))
    moves = []
    for row in APT_ROW.finditer(output):
        name, old, new = row.group("name"), row.group("old"), row.group("new")
        if row.group("verb") != "Inst":
            moves.append(("remove", name, old or ""))
        elif old and new and attempt(module, ["dpkg", "--compare-versions", new, "lt", old])[0] == 0:
            moves.append(("downgrade", name, "{} to {}".format(old, new)))
        elif old and new:
            moves.append(("upgrade", name, "{} to {}".format(old, new)))
        else:
            moves.append(("install", name, new or ""))
    return moves


def apt_download_bytes(module, words):
    """Return bytes that apt-get would still download, None if unknown. words: options and the command."""
    status, output, _ = attempt(module, ["apt-get", "--print-uris", "--yes", *words])
    return sum(map(int, APT_URI.findall(output))) if status == 0 else None


def dnf_moves(module, words):
    """Return rows of what dnf would do. words: options and the command. Raises Refused without a solution."""
    return dnf_simulated(module, words)[0]


def dnf_simulated(module, words):
    """Return (rows, bytes to download) of what dnf would do; bytes are None if unknown. Raises Refused."""
    # Not quiet: the table is what is asked for. --assumeno ends with 1 also where all is well.
    status, output, errors = attempt(module, ["dnf", "--assumeno", *words])
    if status != 0 and DNF_ANSWER not in output + errors:
        raise Refused("dnf --assumeno: exit {}: {}".format(status, last_words(errors, output)))
    moves, verb = [], ""
    for line in output.splitlines():
        if line and not line[0].isspace():
            verb = next((verb for heading, verb in DNF_HEADINGS if heading.match(line)), "")
            continue
        replaced, row = DNF_OBSOLETES.match(line), DNF_ROW.match(line)
        if verb and replaced:
            moves.append(("remove", replaced.group("name"), replaced.group("version")))
        elif verb and row:
            moves.append((verb, row.group("name"), row.group("version") or ""))
    return moves, dnf_bytes(output, moves)


def dnf_bytes(output, moves):
    """Return the bytes that dnf reports for download; None if it installs a package without a size."""
    sizes = DNF_SIZE.findall(output)
    if not sizes:
        return None if any(row[0] in ARRIVES or row[0] == "downgrade" for row in moves) else 0
    wanted = [number for download, number in sizes if download]
    number = DNF_NUMBER.match(wanted[0]) if wanted else None
    if wanted and not number:
        return None
    return int(float(number.group("count")) * UNITS[number.group("unit")]) if number else 0


def rows(moves, packages):
    """Each row as {verb, name, before, version}. packages: {name: version} installed now; dnf's table lacks it."""
    found = []
    for verb, name, words in moves:
        before, _, version = words.rpartition(" to ")
        if verb == "remove":
            before, version = words, ""
        elif verb != "install":
            before = before or packages.get(name) or ""
        found.append({"verb": verb, "name": name, "before": before, "version": version})
    return found


def besides(moves, planned):
    """Rows of what would be removed or downgraded, without planned names.

    A package that is there in several versions, such as kernel-devel, loses its oldest one when a new one comes.
    """
    arriving = {name for verb, name, _ in moves if verb in ARRIVES}
    return [row for row in moves if row[0] not in ARRIVES and row[1] not in planned and row[1] not in arriving]


def sentences(rows):
    return [" ".join(row).strip() for row in rows]


def answer(others=(), refused="", unknown="", rows=(), download_bytes=None, not_built=""):
    """Return the part of planned_packages' result about what would move."""
    moves = {"moves": sentences(others), "moves_refused": refused, "moves_unknown": unknown, "not_built": not_built}
    return dict(moves, transaction=list(rows), download_bytes=download_bytes)


def foreign(moves, order):
    """Rows that no operator agreed to: removals and downgrades of packages of others, and changed holds of others.

    order: planned names; held: names that are held on the host; allowed: names or patterns that your configuration
    allows; plan: whose repositories have NVIDIA's packages.
    """
    changed = [("change held", name, words) for verb, name, words in moves if verb in ARRIVES and name in order["held"]]
    found = [row for row in besides(moves, order["planned"]) + changed if row[1] not in order["planned"]]
    found = [row for row in found if not any(fnmatch.fnmatchcase(row[1], pattern) for pattern in order["allowed"])]
    nvidia = origin.of_nvidia({row[1] for row in found}, order["plan"]) if found else set()
    return [row for row in found if row[1] not in nvidia]


def refusal(rows):
    return (
        "the package transaction would also {}. These packages are not NVIDIA's, and nothing was installed or removed. "
        "If this is intended, allow it by name with packages_allow_changes: [{}]"
    ).format("; ".join(sentences(rows)), ", ".join(sorted({name for _, name, _ in rows})))


def guard(moves, order):
    """Raise Refused for a transaction with a foreign row; order: of planned_packages."""
    found = foreign(moves, order)
    if found:
        raise Refused(refusal(found))
