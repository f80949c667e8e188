"""A merged fleet report in every format. What a format needs (XML, Jinja2) is imported when it is requested."""

from collections.abc import Callable, Iterator

import msgspec

from gpucheck.model import FleetReport
from gpucheck.render import imported_later
from gpucheck.render.fleet.text import to_text
from gpucheck.render.json import line
from gpucheck.render.json import to_json as laid_out

__all__ = ["WRITERS", "json_pieces", "to_csv", "to_html", "to_json", "to_junit", "to_prometheus", "to_text"]

Writer = Callable[[FleetReport], str]


def to_json(fleet: FleetReport) -> str:
    """Return the published contract ``gpucheck.fleet/1``."""
    return b"".join(json_pieces(fleet)).decode()


def json_pieces(fleet: FleetReport) -> Iterator[bytes]:
    """Yield the same one host at a time: as one text, a large fleet needs more memory than its report does."""
    around = laid_out(msgspec.structs.replace(fleet, hosts=()))
    before, hosts, after = around.partition('\n  "hosts": []')
    yield before.encode()
    begin = hosts.removesuffix("]")
    for row in fleet.hosts:
        yield f"{begin}\n    {line(row)}".encode()
        begin = ","
    yield ("\n  ]" if fleet.hosts else hosts).encode()
    yield (after + "\n").encode()


to_csv: Writer = imported_later("fleet.table", "to_csv")
to_prometheus: Writer = imported_later("machine.prometheus", "fleet_to_prometheus")
to_junit: Writer = imported_later("machine.junit", "fleet_to_junit")
to_html: Writer = imported_later("fleet.html", "to_html")
WRITERS: dict[str, Writer] = {
    "json": to_json,
    "csv": to_csv,
    "prometheus": to_prometheus,
    "junit": to_junit,
    "html": to_html,
}
