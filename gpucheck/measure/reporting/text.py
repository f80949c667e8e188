"""Names and counts of copies in findings."""

from collections.abc import Sequence

from gpucheck.measure.running.runner import Pair, Results
from gpucheck.measure.values import HOST, Failure, is_crowd

NAMED = 4
UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def pair_subject(results: Results, pairs: Sequence[Pair]) -> str:
    """Return ``pair:<bus id>-<bus id>`` if all ordered pairs are the same two devices, else ``host``."""
    ends = {frozenset(pair) for pair in pairs}
    if len(ends) != 1:
        return "host"
    a, b = min(pairs)[0], min(pairs)[1]
    if a == b:
        return f"gpu:{results.devices[a].label}"
    return f"pair:{results.devices[a].label}-{results.devices[b].label}"


def pairs_text(results: Results, pairs: Sequence[Pair]) -> str:
    """Return ``GPU 0 <-> 1, 2 -> 3 and 4 more``: one arrow for each two devices, ``<->`` for both directions."""
    names: dict[frozenset[int], str] = {}
    for a, b in pairs:
        arrow = "<->" if a != b and (b, a) in pairs else "->"
        names.setdefault(frozenset((a, b)), f"{results.devices[a].index} {arrow} {results.devices[b].index}")
    texts = list(names.values())
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return f"GPU {', '.join(texts[:NAMED])}{more}"


def count_text(number: int, noun: str) -> str:
    """Return ``1 GPU pair`` or ``56 GPU pairs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def bytes_text(count: int) -> str:
    """Return ``30.4 GB``; decimal units."""
    return next((f"{count / unit:.1f} {name}" for unit, name in UNITS if count >= unit), f"{count} B")


def copied_pairs(failures: Sequence[Failure]) -> list[Pair]:
    """Return the ordered pairs of failed copies; empty if all pairs copied simultaneously."""
    flows = dict.fromkeys(flow for failure in failures if not is_crowd(failure.purpose) for flow in failure.flows)
    return list(dict.fromkeys((f.src, f.dst) for f in flows if HOST not in (f.src, f.dst)))


def where_copied(failure: Failure, results: Results) -> str:
    """Return the GPUs of a copy without a pair: ``GPU 3``; empty for pairs and for simultaneous copies of all."""
    if is_crowd(failure.purpose) or any(src != dst for src, dst in copied_pairs([failure])):
        return ""
    devices = sorted({results.devices[max(flow.src, flow.dst)].index for flow in failure.flows})
    return f"GPU {', '.join(map(str, devices))}" if devices else ""
