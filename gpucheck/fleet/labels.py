"""What a site knows about its hosts: labels from a file, else parts of the host's name."""

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpucheck.foreign import read_text
from gpucheck.model import FleetRow

Labels = dict[str, dict[str, str]]
HOST_COLUMNS = ("host", "hostname", "node", "name")
PARTS = tuple(f"host name part {n}" for n in range(1, 7))
MAX_LABELS_BYTES = 64 * 1024 * 1024


def read_labels(path: Path) -> Labels:
    """Labels by host, from CSV with a column ``host``, or YAML or JSON ``{host: {rack: r12}}``.

    Raises UnreadableInput when the file cannot be read, ValueError with a whole sentence when it holds no labels.
    """
    text = read_text(path, MAX_LABELS_BYTES, "Give a CSV or YAML file of labels")
    return _from_csv(path, text) if path.suffix == ".csv" else _from_yaml(path, text)


def labelled(rows: Sequence[FleetRow], labels: Labels) -> list[FleetRow]:
    """The rows with their labels as attributes: those given, and parts of the name that several hosts share."""
    telling = [] if len(rows) < 3 else _telling_parts([row.host for row in rows])
    out = []
    for row in rows:
        more = labels.get(row.host) or labels.get(row.host.partition(".")[0]) or {}
        found = _name_parts(row.host, telling) | {name: (value,) for name, value in more.items() if value}
        out.append(msgspec.structs.replace(row, attributes=row.attributes | found) if found else row)
    return out


def _parts(host: str) -> list[str]:
    return re.split(r"[-_.]", host)[: len(PARTS)]


def _telling_parts(hosts: list[str]) -> list[dict[str, tuple[str]]]:
    """By position the parts of names that group: neither the same for all nor each host's own."""
    counts: list[Counter[str]] = [Counter() for _ in PARTS]
    for host in hosts:
        for count, part in zip(counts, _parts(host), strict=False):
            count[part] += 1
    return [
        {part: (part,) for part, n in count.items() if part and n > 1} if 1 < len(count) <= len(hosts) // 2 else {}
        for count in counts
    ]


def _name_parts(host: str, telling: list[dict[str, tuple[str]]]) -> dict[str, tuple[str, ...]]:
    """``gpu-r12-n03``: part 2 is ``r12``. What hosts share is one object, for a fleet has many of them."""
    parts = zip(PARTS, telling, _parts(host), strict=False)
    return {name: known[part] for name, known, part in parts if part in known}


def _from_csv(path: Path, text: str) -> Labels:
    reader = csv.DictReader(io.StringIO(text))
    try:
        column = next((name for name in reader.fieldnames or () if name.strip().lower() in HOST_COLUMNS), None)
        if column is None:
            raise ValueError(f"{path}: the first line has no column 'host'. Write, for example: host,rack")
        return {
            line[column].strip(): {k.strip(): (v or "").strip() for k, v in line.items() if k and k != column}
            for line in reader
            if line[column]
        }
    except (csv.Error, AttributeError) as error:
        raise ValueError(f"{path}: line {reader.line_num}: {error}. Write a cell for every column.") from error


def _from_yaml(path: Path, text: str) -> Labels:
    from gpucheck.foreign.documents import DocumentProblem, parse

    try:
        found = parse(text, str(path), dict[str, dict[str, str | int | float | bool | None]])
    except DocumentProblem as error:
        raise ValueError(f"{error}. Write for example: node07: {{rack: r12}}") from error
    try:
        return {host: {k: str(v) for k, v in more.items() if v is not None} for host, more in found.items()}
    except ValueError as error:  # Python writes no integer of more than 4300 digits
        raise ValueError(f"{path}: a label is a number with thousands of digits. Put it in quotes.") from error
