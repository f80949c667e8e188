"""A merged fleet report as JSON, ``gpucheck.fleet/1``, one host at a time."""

from collections.abc import Iterator

import msgspec

from gpucheck.model import FleetReport
from gpucheck.render.json import to_json as indented


def to_json(fleet: FleetReport) -> str:
    """Return the published contract, indented."""
    return b"".join(json_pieces(fleet)).decode()


def json_pieces(fleet: FleetReport) -> Iterator[bytes]:
    """Yield the same one host at a time: as one text, a large fleet needs more memory than its report does."""
    around = indented(msgspec.structs.replace(fleet, hosts=()))
    before, hosts, after = around.partition('\n  "hosts": []')
    yield before.encode()
    begin = hosts.removesuffix("]")
    for row in fleet.hosts:
        # No string in JSON contains a line break: each of them belongs to the layout.
        yield (begin + "\n    " + indented(row).replace("\n", "\n    ")).encode()
        begin = ","
    yield ("\n  ]" if fleet.hosts else hosts).encode()
    yield (after + "\n").encode()
