"""Documents that commands print as plain dictionaries: what is in them, for their schema and for mypy."""

from typing import TypedDict

from gpucheck.bundle.contents import BundledGroup, BundledSystem, OwnWheel
from gpucheck.images.probe import ImageManifest
from gpucheck.model import Finding, Verdict


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


class StackDifference(TypedDict):
    """changes: one line per version that would change."""

    schema: str
    lock: str
    changes: list[str]


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
