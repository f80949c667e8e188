"""Let NCCL log to files of the run, and parse transports and algorithms from them.

A multicast group in the log does not mean that NCCL uses it: it may still choose rings. Only the tuning lines and a
second run without NVLS show which algorithm ran.
"""

import os
import re
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import msgspec

CHANNEL = re.compile(r"Channel \d+(?:/\d+)? : (\d+)\[[^\]]*\] -> (\d+)\[[^\]]*\](?: \[(\w+)\])? via (\S+)")
USING = re.compile(r"NET/IB : Using ([^;]*)")
CARD = re.compile(r"\[\d+\]([^\s:]+):\d+/")
DIRECT = "GDRDMA"
# NCCL 2.20 to 2.22 log the line without the name of the collective, older ones not at all (src/enqueue.cc).
CHOICE = re.compile(r"(?:(\w+): )?\d+ Bytes -> Algo (\w+) proto \w+")
LAST_ERROR = "Last error:"
# By their numbers, which some versions log in place of the names.
NAMES = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
ALGORITHM = {str(number): name for number, name in enumerate(NAMES)}
MOST_CHARACTERS = 20_000_000
SHOW = "GPUCHECK_NCCL_LOG"  # set: the text goes to stderr as well, for a recording


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """transports: channels by kind (``P2P/CUMEM``, ``SHM``, ``NET/IB``). algorithms: by collective, as in AllReduce.

    The key of algorithms is empty where the log names no collective.
    cards: RDMA devices that NCCL uses. direct: ranks whose channels reach GPU memory without a copy (GPUDirect RDMA).
    """

    transports: dict[str, int] = msgspec.field(default_factory=dict)
    algorithms: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()
    direct: tuple[int, ...] = ()

    def chosen(self, collective: str) -> tuple[str, ...]:
        """Return the algorithms of a collective; of all of them where the log names none."""
        return self.algorithms.get(collective) or self.algorithms.get("", ())


def logging_environment(directory: Path) -> dict[str, str]:
    """Return the variables with which NCCL logs its choices to a file of each process, in this directory."""
    return {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,TUNING",
        "NCCL_DEBUG_FILE": str(directory / "nccl.%h.%p"),
    }


def read(directory: Path) -> Taken:
    """Parse the files of all processes."""
    text = ""
    for file in sorted(directory.glob("nccl.*")):
        with suppress(OSError):
            text += file.read_text(encoding="utf-8", errors="replace")
    if os.environ.get(SHOW):
        print(text, file=sys.stderr)
    return parse(text)


def parse(text: str) -> Taken:
    """Parse all known lines; a log of another version may contain fewer of them, which is not an error."""
    text = text[:MOST_CHARACTERS]
    transports: Counter[str] = Counter()
    direct: set[int] = set()
    for src, dst, way, via in CHANNEL.findall(text):
        # The rank at this end prints the line.
        direct |= {int(dst if way == "receive" else src)} if DIRECT in via.split("/") else set()
        transports[_kind(via)] += 1
    algorithms: dict[str, list[str]] = {}
    for name, algorithm in CHOICE.findall(text):
        chosen = algorithms.setdefault(name, [])
        word = ALGORITHM.get(algorithm, algorithm.upper())
        if word not in chosen:
            chosen.append(word)
    warned = [line.partition("NCCL WARN ")[2].strip() for line in text.splitlines() if "NCCL WARN " in line]
    return Taken(
        transports=dict(transports.most_common()),
        algorithms={name: tuple(chosen) for name, chosen in algorithms.items()},
        warnings=tuple(dict.fromkeys(warned))[:10],
        cards=tuple(dict.fromkeys(name for line in USING.findall(text) for name in CARD.findall(line))),
        direct=tuple(sorted(direct)),
    )


def error_text(message: str) -> str:
    """Return the line of an exception's message that names the cause.

    torch prints the location of its call first, and NCCL's reason last, below "Last error:".
    """
    first, _, rest = message.strip().partition("\n")
    last = " ".join(rest.rpartition(LAST_ERROR)[2].split()) if LAST_ERROR in rest else ""
    return f"{last} ({first})" if last else first


def _kind(via: str) -> str:
    """Return the transport: ``P2P/direct pointer`` and ``P2P/CUMEM/read`` are peer to peer; NET names its plugin."""
    parts = via.split("/")
    if parts[0] in ("P2P", "NET") and len(parts) > 1:
        return f"{parts[0]}/{parts[1]}"
    return parts[0]
