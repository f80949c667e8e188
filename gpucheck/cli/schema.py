"""Print the JSON Schema of a published document"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import click
import msgspec

from gpucheck.bundle.contents import BundledGroup, BundledSystem, OwnWheel
from gpucheck.cli._shared.common import OutputFile, Problem, write_result
from gpucheck.cli._shared.completion import completer
from gpucheck.images.probe import ImageManifest
from gpucheck.model import Finding, Verdict
from gpucheck.printable import meant
from gpucheck.processes.atomic import SHARED

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class ProfileRow(TypedDict):
    """A simulated machine. driver: its version, null where it has none. source: what the machine was made from."""

    name: str
    summary: str
    gpus: int
    driver: str | None
    source: str


class FaultRow(TypedDict):
    """A fault. usage: ``NAME:gpu=N,width=N``."""

    name: str
    usage: str
    summary: str


class Profiles(TypedDict):
    """What can be simulated."""

    schema: str
    profiles: list[ProfileRow]
    faults: list[FaultRow]


class StepRow(TypedDict):
    """A step of a run. level: the first that runs it. typical_s: on a healthy host; after limit_s it is abandoned."""

    name: str
    level: str
    tags: list[str]
    asks: str
    typical_s: float
    limit_s: float


class CauseRow(TypedDict):
    """A cause that findings name."""

    name: str
    means: str


class Listing(TypedDict):
    """What can be explained by name."""

    schema: str
    steps: list[StepRow]
    causes: list[CauseRow]


class ImageReport(TypedDict):
    """A container image. image: what it was built as, null outside of one. libraries: installed versions."""

    schema: str
    simulated: bool
    image: ImageManifest | None
    purpose: str | None
    frameworks: dict[str, str]
    libraries: dict[str, str | None]
    driver: str | None
    gpus: int
    shm_bytes: int | None
    verdict: Verdict
    counts: dict[str, int]
    findings: list[Finding]
    seconds: float


class LabContainer(TypedDict):
    """A host of the lab, or its mirror. address: null while it does not run."""

    name: str
    host: str
    state: str
    address: str | None
    flavour: str | None


class LabStatus(TypedDict):
    """The lab. engine: whether Docker runs. state: up, partial or down. inventory: path of the file."""

    schema: str
    name: str
    engine: bool
    state: str
    containers: list[LabContainer]
    inventory: str | None


class BundleSummary(TypedDict):
    """A verified bundle without the list of its files. bytes: of all files."""

    schema: str
    made: str
    key: str
    simulated: bool
    wheel: OwnWheel
    groups: dict[str, BundledGroup]
    systems: dict[str, BundledSystem]
    bytes: int


class Document(NamedTuple):
    """types: ``module:class`` of this package, one of them. printed: the command that prints or writes it.

    number: of its schema, 0 where it has no key ``schema``. promised: its keys stay while that number stays.
    """

    name: str
    types: tuple[str, ...]
    printed: str
    number: int = 1
    promised: bool = False

    @property
    def schema(self) -> str:
        return f"gpucheck.{self.name}/{self.number}" if self.number else ""


LIST = (
    Document("report", ("model.record:Report",), "verify --format json", promised=True),
    Document("topology", ("model.topology:Topology",), "topo --format json"),
    Document("bandwidth", ("model.bandwidth:BandwidthReport",), "bandwidth --format json"),
    Document("collectives", ("model.collectives:CollectivesReport",), "collectives --format json"),
    Document("compute", ("model.compute:ComputeReport",), "compute --format json"),
    Document("network", ("model.network:NetworkReport",), "network --format json"),
    Document("smoke", ("model.smoke:SmokeReport",), "smoke --format json", number=2),
    Document("diagnosis", ("model.diagnosis:Diagnosis",), "diagnose --format json"),
    Document(
        "observations",
        ("model.diagnosis.observations:Observations",),
        "key observations of bandwidth, collectives, network, diagnosis",
        number=0,
    ),
    Document("isolation", ("model.isolation:IsolationReport",), "isolate --format json"),
    Document("history", ("model.fleet:HistoryReport",), "fleet history --format json"),
    Document("fleet", ("model.fleet:FleetReport",), "fleet report --format json"),
    Document("recording", ("host.recording:Recording",), "record", promised=True),
    Document("facts", ("stack.facts:HostFacts",), "stack facts of a host (provisioning)"),
    Document("stack", ("stack.stack_set:StackSet", "stack.types:Refusal"), "stack resolve --format json"),
    Document("lock", ("stack.lock:Lock",), "stack lock (YAML)"),
    Document("plan", ("stack.plan:Plan",), "stack plan --format json", promised=True),
    Document("repositories", ("repositories.comparison:RepositoryReport",), "stack check-repositories --format json"),
    Document("image", ("cli.schema:ImageReport",), "image --format json"),
    Document("images", ("images.versions:Versions",), "image list --format json"),
    Document("profiles", ("cli.schema:Profiles",), "profiles --format json"),
    Document("listing", ("cli.schema:Listing",), "explain --list --format json"),
    Document("lab", ("cli.schema:LabStatus",), "lab status --format json"),
    Document("bundle-summary", ("cli.schema:BundleSummary",), "bundle verify --format json"),
    Document("bundle", ("bundle.contents:Manifest",), "bundle.json of make bundle"),
)
DOCUMENTS = {one.name: one for one in LIST}


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a document. Keys that it does not name are allowed: newer ones.

    Raises KeyError for an unknown name.
    """
    document = DOCUMENTS[name]
    places = (place.split(":") for place in document.types)
    types = [getattr(import_module(f"gpucheck.{module}"), kind) for module, kind in places]
    references, definitions = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    if document.schema:
        definition = definitions[types[0].__name__]
        definition["properties"]["schema"] = {"const": document.schema}
        definition["required"] = ["schema", *(key for key in definition.get("required", ()) if key != "schema")]
    root = references[0] if len(references) == 1 else {"anyOf": list(references)}
    about = {
        "$schema": DIALECT,
        "$id": f"urn:gpucheck:{name}:{document.number or 1}",
        "title": document.schema or f"gpucheck {name}",
    }
    for definition in definitions.values():
        # gpucheck rejects unknown keys in some files that it reads; other readers need not.
        if "properties" in definition:
            definition.pop("additionalProperties", None)
    # As it is read from a file: lists, where msgspec has tuples.
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode({**about, **root, "$defs": definitions}))
    return made


@click.command()
@click.argument(
    "name", required=False, shell_complete=completer(lambda _: {name: one.printed for name, one in DOCUMENTS.items()})
)
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    help="Write the schema to FILE (atomically) instead of stdout (-).",
)
def COMMAND(name: str | None, output: Path | None) -> None:  # noqa: N802 - the name the command walk looks for
    """Print the JSON Schema of a published document. Default: list all documents.

    \b
    gpucheck schema report -o report.schema.json
    check-jsonschema --schemafile report.schema.json report.json
    """
    if name is None:
        from gpucheck.render.write import terminal

        rows = [(one.name, one.schema or "-", "promised" if one.promised else "-", one.printed) for one in LIST]
        write_result("\n".join(terminal.table(("", "", "", ""), rows)[1:]), output)
        return
    if name not in DOCUMENTS:
        hint = meant(name.removeprefix("gpucheck.").partition("/")[0], DOCUMENTS)
        raise Problem(f"{name}: unknown document.{hint} Available: {', '.join(DOCUMENTS)}.")
    write_result(json.dumps(schema_of(name), indent=2), output, mode=SHARED)
