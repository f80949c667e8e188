"""The answer to observations: the outside contract of ``gpucheck diagnose``."""

import re

import msgspec

from gpucheck.model.diagnosis.observations import Observations
from gpucheck.model.finding import Finding, Verdict

SCHEMA = "gpucheck.diagnosis/1"


class ReadRange(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of an input that were understood, and as what. Lines are counted from 1."""

    kind: str
    source: str
    first_line: int
    last_line: int


class UnreadRange(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of an input that were not understood. text: the first that looks like output, or the first, shortened.

    why: what a reader that recognized them could not make of them; empty where they are no output of a known tool.
    """

    source: str
    first_line: int
    last_line: int
    why: str
    text: str = ""


# Frames of tables, times, levels, bus ids, numbers in columns, names with values; and frames of a Python stack.
# Compiled when a line is looked at: few commands do that.
OUTPUT = (
    r"^\s{0,40}[|+\u2500-\u257f]|^\[ {0,8}\d|\d\d:\d\d:\d\d|\b(?:ERROR|WARN|WARNING|FATAL|FAIL|FAILED|INFO|EE|WW)\b"
    r"|\b[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b|\b\d[\d.]{0,20}\s{1,20}\d[\d.]{0,20}\s{1,20}\d|^\s{0,40}[\w()/.-]{2,40}\s{0,40}[:=]\s{0,20}\S{0,60}\d"
    r"|\w{3,40}(?:Error|Exception): |^\w[\w./-]{1,40}: [a-z]|: error: "
)
STACK = r'^\s{0,40}(?:File "|Traceback \(|During handling|The above exception|\^|\S{1,40} ?line \d{1,6}, in )'


def is_output(line: str) -> bool:
    """Whether a line looks like output of a tool, not like prose or a frame of a stack."""
    return re.search(OUTPUT, line) is not None and re.match(STACK, line) is None


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
