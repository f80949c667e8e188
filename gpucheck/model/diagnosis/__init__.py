"""The answer to observations: the outside contract of ``gpucheck diagnose``."""

import msgspec

from gpucheck.model.diagnosis.observations import Observations
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict

SCHEMA = "gpucheck.diagnosis/1"


class ReadRange(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of an input that were understood, and as what. Lines are counted from 1."""

    kind: str
    source: str
    first_line: int
    last_line: int


class UnreadRange(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of an input that were not understood. text: the first of them, shortened.

    why: what a reader that recognized them could not make of them; empty where they are no output of a known tool.
    """

    source: str
    first_line: int
    last_line: int
    why: str
    text: str = ""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``gpucheck diagnose --format json``.

    source: the inputs. machine: the host that they name, None where they name none. gpus: how many there are in them.
    counts: findings by verdict, every verdict present.
    read, unread: lines of the inputs that were understood, and as what, and those that were not.
    observations: all that the inputs report of GPU links. looked_at: what was checked, as text; unproven: what no
    input covers, though readiness for training needs it.
    machines: one answer for each host, if the inputs are of several. Then machine and observations are empty, findings
    are those about the inputs, and verdict, gpus, counts and read are of all hosts.
    """

    schema: str = SCHEMA
    verdict: Verdict
    source: tuple[str, ...]
    machine: str | None = None
    gpus: int
    findings: tuple[Finding, ...]
    counts: dict[str, int]
    read: tuple[ReadRange, ...] = ()
    unread: tuple[UnreadRange, ...] = ()
    observations: Observations = Observations()
    looked_at: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    machines: "tuple[Diagnosis, ...]" = ()

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """How findings name the GPUs: by bus id, or ``GPU3`` where the inputs give none."""
        return tuple(gpu.bus_id or f"GPU{i}" for i, gpu in enumerate(self.observations.gpus))
