"""What a metric of the fleet is called for people: its key names where it came from, and ends in its unit."""

# As keys end -> as people write it. Longest first: per_s ends in s.
UNITS = {
    "tflops": "TFLOPS",
    "per_second": "per s",
    "per_s": "per s",
    "percent": "%",
    "seconds": "s",
    "gb_s": "GB/s",
    "bytes": "bytes",
    "ratio": "ratio",
    "count": "count",
    "mib": "MiB",
    "mhz": "MHz",
    "us": "us",
    "ms": "ms",
    "s": "s",
    "w": "W",
    "c": "C",
}


def metric_title(metric: str) -> str:
    """Return ``p2p unidirectional [NV18] (GB/s)`` for ``p2p.unidirectional_gb_s[NV18]``."""
    name, bracket, words = metric.partition("[")
    where = f" [{words}" if bracket else ""
    if name.startswith("finding."):
        check, _, unit = name.removeprefix("finding.").rpartition(".")
        symbol = UNITS.get(unit, unit.replace("_", " "))
        return check + where if symbol == check else f"{check}{where} ({symbol})"
    for ending, symbol in UNITS.items():
        if name.endswith((f"_{ending}", f".{ending}")):
            return f"{_words(name[: -len(ending) - 1])}{where} ({symbol})"
    return _words(name) + where


def _words(name: str) -> str:
    return name.replace("_", " ").replace(".", " ")
