"""A merged fleet report in every format. What a format needs (XML, Jinja2) is imported when it is requested."""

from collections.abc import Callable, Iterator
from importlib import import_module

import msgspec

from gpucheck.model.fleet import FleetReport
from gpucheck.render.formats import Change, show
from gpucheck.render.json import line, to_json

# Module and function of what is no text.
WRITERS = {
    "csv": ("machine.spreadsheet", "to_csv"),
    "prometheus": ("machine.prometheus", "fleet_to_prometheus"),
    "junit": ("machine.junit", "fleet_to_junit"),
    "html": ("write.fleet_page", "to_html"),
}
FORMATS = ("text", "json", *WRITERS, "markdown")


def render(
    fleet: FleetReport,
    format_: str,
    *,
    verbose: bool = False,
    width: int | None = None,
    change: Change | None = None,
    fail_on: str = "warn",
) -> str:
    """The report in one of FORMATS; options as for gpucheck.render.formats.render."""
    if format_ == "json":
        return b"".join(json_pieces(fleet)).decode()
    if format_ in WRITERS:
        module, name = WRITERS[format_]
        write: Callable[..., str] = getattr(import_module(f"gpucheck.render.{module}"), name)
        return write(fleet, fail_on=fail_on) if format_ == "junit" else write(fleet)
    from gpucheck.render.subjects.fleet import document

    return show(document(fleet, verbose=verbose, width=width), format_, width=width, change=change)


def json_pieces(fleet: FleetReport) -> Iterator[bytes]:
    """Yield ``gpucheck.fleet/1`` one host at a time: as one text, a large fleet needs more memory than its report."""
    around = to_json(msgspec.structs.replace(fleet, hosts=()))
    before, hosts, after = around.partition('\n  "hosts": []')
    yield before.encode()
    begin = hosts.removesuffix("]")
    for row in fleet.hosts:
        yield f"{begin}\n    {line(row)}".encode()
        begin = ","
    yield ("\n  ]" if fleet.hosts else hosts).encode()
    yield (after + "\n").encode()
