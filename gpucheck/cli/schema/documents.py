"""The published documents, and a JSON Schema of each, made from the types that write them."""

from importlib import import_module
from typing import Any, NamedTuple, TypedDict

from gpucheck.bundle.contents import BundledGroup, BundledSystem, OwnWheel
from gpucheck.images.probe import ImageManifest
from gpucheck.model import Finding, Verdict

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
    """schema: the value of its key ``schema``, empty where it has none. types: ``module:class``, one of them.

    printed: the command that prints or writes it. promised: its keys stay while the number of the schema stays.
    """

    schema: str
    types: tuple[str, ...]
    printed: str
    promised: bool = False


DOCUMENTS = {
    "report": Document("gpucheck.report/1", ("gpucheck.model.record:Report",), "verify --format json", promised=True),
    "topology": Document("gpucheck.topology/1", ("gpucheck.model.topology:Topology",), "topo --format json"),
    "bandwidth": Document(
        "gpucheck.bandwidth/1", ("gpucheck.model.bandwidth:BandwidthReport",), "bandwidth --format json"
    ),
    "collectives": Document(
        "gpucheck.collectives/1", ("gpucheck.model.collectives:CollectivesReport",), "collectives --format json"
    ),
    "compute": Document("gpucheck.compute/1", ("gpucheck.model.compute:ComputeReport",), "compute --format json"),
    "network": Document("gpucheck.network/1", ("gpucheck.model.network:NetworkReport",), "network --format json"),
    "smoke": Document("gpucheck.smoke/2", ("gpucheck.model.smoke:SmokeReport",), "smoke --format json"),
    "diagnosis": Document("gpucheck.diagnosis/1", ("gpucheck.model.diagnosis:Diagnosis",), "diagnose --format json"),
    "observations": Document(
        "",
        ("gpucheck.model.diagnosis.observations:Observations",),
        "key observations of bandwidth, collectives, network, diagnosis",
    ),
    "isolation": Document(
        "gpucheck.isolation/1", ("gpucheck.model.isolation:IsolationReport",), "isolate --format json"
    ),
    "history": Document("gpucheck.history/1", ("gpucheck.model.fleet:HistoryReport",), "fleet history --format json"),
    "fleet": Document("gpucheck.fleet/1", ("gpucheck.model.fleet:FleetReport",), "fleet report --format json"),
    "recording": Document("gpucheck.recording/1", ("gpucheck.host.recording:Recording",), "record", promised=True),
    "facts": Document("gpucheck.facts/1", ("gpucheck.stack.facts:HostFacts",), "stack facts of a host (provisioning)"),
    "stack": Document(
        "gpucheck.stack/1",
        ("gpucheck.stack.stack_set:StackSet", "gpucheck.stack.types:Refusal"),
        "stack resolve --format json",
    ),
    "lock": Document("gpucheck.lock/1", ("gpucheck.stack.lock:Lock",), "stack lock (YAML)"),
    "plan": Document("gpucheck.plan/1", ("gpucheck.stack.plan:Plan",), "stack plan --format json", promised=True),
    "repositories": Document(
        "gpucheck.repositories/1",
        ("gpucheck.repositories.comparison:RepositoryReport",),
        "stack check-repositories --format json",
    ),
    "image": Document("gpucheck.image/1", ("gpucheck.cli.schema.documents:ImageReport",), "image --format json"),
    "images": Document("gpucheck.images/1", ("gpucheck.images.versions:Versions",), "image list --format json"),
    "profiles": Document("gpucheck.profiles/1", ("gpucheck.cli.schema.documents:Profiles",), "profiles --format json"),
    "listing": Document(
        "gpucheck.listing/1", ("gpucheck.cli.schema.documents:Listing",), "explain --list --format json"
    ),
    "lab": Document("gpucheck.lab/1", ("gpucheck.cli.schema.documents:LabStatus",), "lab status --format json"),
    "bundle-summary": Document(
        "gpucheck.bundle-summary/1", ("gpucheck.cli.schema.documents:BundleSummary",), "bundle verify --format json"
    ),
    "bundle": Document("gpucheck.bundle/1", ("gpucheck.bundle.contents:Manifest",), "bundle.json of make bundle"),
}


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a document. Keys that it does not name are allowed: newer ones.

    Raises KeyError for an unknown name.
    """
    import msgspec

    document = DOCUMENTS[name]
    types = [getattr(import_module(module), kind) for module, _, kind in (t.partition(":") for t in document.types)]
    references, definitions = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    if document.schema:
        definition = definitions[types[0].__name__]
        definition["properties"]["schema"] = {"const": document.schema}
        definition["required"] = ["schema", *(key for key in definition.get("required", ()) if key != "schema")]
    major = document.schema.partition("/")[2] or "1"
    root = references[0] if len(references) == 1 else {"anyOf": list(references)}
    about = {"$schema": DIALECT, "$id": f"urn:gpucheck:{name}:{major}", "title": document.schema or f"gpucheck {name}"}
    for definition in definitions.values():
        # gpucheck rejects unknown keys in some files that it reads; other readers need not.
        if "properties" in definition:
            definition.pop("additionalProperties", None)
    # As it is read from a file: lists, where msgspec has tuples.
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode({**about, **root, "$defs": definitions}))
    return made
