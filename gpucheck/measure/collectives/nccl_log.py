"""Parse transports, algorithms and versions from NCCL's log (NCCL_DEBUG=INFO). Pure functions.

A multicast group in the log does not mean that NCCL uses it: it may still choose rings. Only the tuning lines and a
second run without NVLS show which algorithm ran.
"""

import re
from collections import Counter

import msgspec

CHANNEL = re.compile(r"Channel \d+(?:/\d+)? : (\d+)\[[^\]]*\] -> (\d+)\[[^\]]*\](?: \[\w+\])? via (\S+)")
CHOICE = re.compile(r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)")
LAST_ERROR = "Last error:"
VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
ALGORITHM = {"0": "TREE", "1": "RING", "2": "COLLNET_DIRECT", "3": "COLLNET_CHAIN", "4": "NVLS", "5": "NVLS_TREE"}
MOST_CHARACTERS = 20_000_000


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """transports: channels by kind (``P2P/CUMEM``, ``SHM``, ``NET/IB``). algorithms: by collective, as in AllReduce.

    pairs: transport of each rank pair that named one.
    """

    version: str | None = None
    transports: dict[str, int] = msgspec.field(default_factory=dict)
    algorithms: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    pairs: dict[str, str] = msgspec.field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def parse(text: str) -> Taken:
    """Parse all known lines; a log of another version may contain fewer of them, which is not an error."""
    text = text[:MOST_CHARACTERS]
    transports: Counter[str] = Counter()
    pairs: dict[str, str] = {}
    for src, dst, via in CHANNEL.findall(text):
        kind = _kind(via)
        transports[kind] += 1
        pairs[f"{src}-{dst}"] = kind
    algorithms: dict[str, list[str]] = {}
    for name, _, algorithm, _ in CHOICE.findall(text):
        chosen = algorithms.setdefault(name, [])
        word = ALGORITHM.get(algorithm, algorithm.upper())
        if word not in chosen:
            chosen.append(word)
    version = VERSION.search(text)
    warned = [line.partition("NCCL WARN ")[2].strip() for line in text.splitlines() if "NCCL WARN " in line]
    return Taken(
        version=version[1] if version else None,
        transports=dict(transports.most_common()),
        algorithms={name: tuple(chosen) for name, chosen in algorithms.items()},
        pairs=pairs,
        warnings=tuple(dict.fromkeys(warned))[:10],
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
