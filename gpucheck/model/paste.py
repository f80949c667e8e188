"""What was read out of pasted text: one part for each piece of it that a tool or a log printed."""

import msgspec

from gpucheck.model.diagnosis import ReadRange, UnreadRange
from gpucheck.model.facts import Facts
from gpucheck.model.topology import Topology


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A line whose meaning is known: a row of knowledge/messages.

    key: of the row. text: the line. line: its number. gpu: bus id or index of the GPU that it names.
    """

    key: str
    text: str
    line: int = 0
    gpu: str | None = None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of pasted text, read.

    machine: the host that it names, None where it names none or several.
    facts: what it reports of that host. topology: of a text that prints how the GPUs are connected.
    messages: lines with a known meaning.
    looked_at: what was checked, as text (``ECC counters of 8 GPUs``), for a result without findings.
    partial: it lists PCI functions, and may list fewer or more GPUs than the driver has; each is found by its bus id.
    ran_on: the host name that a job printed: in a container that of the container, so it only parts jobs.
    unread: lines of it that are damaged; what is left was read.
    """

    machine: str | None = None
    facts: Facts = Facts()
    topology: Topology | None = None
    messages: tuple[Message, ...] = ()
    looked_at: tuple[str, ...] = ()
    ranges: tuple[ReadRange, ...] = ()
    partial: bool = False
    ran_on: str | None = None
    unread: tuple[UnreadRange, ...] = ()


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One input: what was understood in it, and the lines that were not."""

    parts: tuple[Part, ...] = ()
    unread: tuple[UnreadRange, ...] = ()
