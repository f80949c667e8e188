"""Read the output of other tools into model types.

Each module holds a ``Kind`` of output, or several; directories only group them, and there is no list to maintain.
Modules that start with an underscore are shared. A file of knowledge/messages with a title is a kind without a module.
"""

from functools import cache
from importlib import import_module
from pkgutil import walk_packages

from msgspec.structs import replace

from gpucheck.imports._kind import Kind, of_messages
from gpucheck.imports._pieces import read_pieces
from gpucheck.imports._text import MAX_BYTES, ImportProblem, decode, lines_of
from gpucheck.imports._unwrap import unwrapped
from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.messages import titles
from gpucheck.model.paste import Part, Reading
from gpucheck.model.topology import Topology

__all__ = ["MAX_BYTES", "ImportProblem", "Kind", "all_kinds", "read", "read_all"]


@cache
def all_kinds() -> tuple[Kind, ...]:
    """Every kind here in the order in which they are tried: strict before loose, then by name."""
    found = walk_packages(__path__, prefix=f"{__name__}.")
    names = (m.name for m in found if not m.ispkg and not any(part.startswith("_") for part in m.name.split(".")))
    kinds = [one for name in names for one in vars(import_module(name)).values() if isinstance(one, Kind)]
    kinds += [of_messages(name, title, exact=exact) for name, (title, exact) in titles().items()]
    return tuple(sorted(kinds, key=lambda kind: (kind.loose, kind.name)))


def read_all(data: bytes, source: str, as_: str | None = None) -> Reading:
    """Everything that is understood in a text, whatever tools printed it, and the lines that are not.

    source: the name of the input for messages. as_: the kind of the entire text, if the user states it.
    Raises ImportProblem, and nothing else: for no text at all, for a text in which nothing is understood, and for a
    text that is not of the kind as_.
    """
    lines = unwrapped(lines_of(decode(data)))
    del data  # a hundred megabytes, unless the caller still holds them
    return read_pieces(lines, source, all_kinds(), as_)


def read(data: str | bytes) -> Topology:
    """The first whole topology in a text, with the names of the GPUs that the text lists elsewhere.

    Raises ImportProblem, and nothing else, for any input.
    """
    reading = read_all(data if isinstance(data, bytes) else data.encode("utf-8", errors="replace"), "")
    found = [part for part in reading.parts if part.topology is not None]
    part = next((one for one in found if not one.unread), found[0] if found else Part())
    if part.topology is None:
        raise _without_topology(reading)
    listed = {gpu.index: gpu for one in reading.parts for gpu in one.facts.gpus if gpu.name}
    gpus = (
        replace(gpu, name=known.name, uuid=known.uuid or None) if (known := listed.get(gpu.index)) else gpu
        for gpu in part.topology.gpus
    )
    findings = list(part.topology.findings)
    if len(found) > 1:
        line = part.ranges[0].first_line
        lines = [f"line {one.ranges[0].first_line}: another matrix" for one in found if one is not part]
        subject = Subject(check="topology", evidence=tuple(lines[:8]))
        findings.append(subject.skips("topology.more-matrices", f"{len(found)} matrices", "1 matrix", line=line))
    return replace(part.topology, gpus=tuple(gpus), findings=tuple(findings))


def _without_topology(reading: Reading) -> ImportProblem:
    """Why a text has none: what is damaged in it, else what it holds."""
    damaged = next((row for row in reading.unread if row.why), None)
    held = dict.fromkeys(words for part in reading.parts for words in part.looked_at or (part.ranges[0].kind,))
    return ImportProblem(
        "no topology in the input",
        line=damaged.first_line if damaged else None,
        why=damaged.why if damaged else f"it holds {', '.join(held)}, and not how the GPUs are connected",
        do="Give the output of nvidia-smi topo -m. What else was pasted is read by: gpucheck diagnose FILE",
    )
