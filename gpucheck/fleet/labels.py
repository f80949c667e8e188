"""Labels of hosts, from a file."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpucheck.foreign import read_text
from gpucheck.model import FleetRow

Labels = dict[str, dict[str, str]]
HOST_COLUMNS = ("host", "hostname", "node", "name")
MAX_LABELS_BYTES = 64 * 1024 * 1024


def read_labels(path: Path) -> Labels:
    """Labels by host, from CSV with a column ``host``.

    Raises UnreadableInput when the file cannot be read, ValueError with a whole sentence when it holds no labels.
    """
    text = read_text(path, MAX_LABELS_BYTES, "Give a CSV file of labels")
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


def labelled(rows: Sequence[FleetRow], labels: Labels) -> list[FleetRow]:
    out = []
    for row in rows:
        more = labels.get(row.host) or labels.get(row.host.partition(".")[0]) or {}
        found = {name: (value,) for name, value in more.items() if value}
        out.append(msgspec.structs.replace(row, attributes=row.attributes | found) if found else row)
    return out


def lemons(labels: Labels) -> tuple[str, ...]:
    """Return the nodes that ``fleet history`` ranked, the worst first. Raises ValueError, a whole sentence."""
    places = {host: more["lemon"] for host, more in labels.items() if more.get("lemon")}
    for host, place in places.items():
        if not place.isdecimal():
            raise ValueError(f"{host}: lemon {place!r}: expected a number, as fleet history writes it.")
    return tuple(sorted(places, key=lambda host: int(places[host])))
