"""How findings call what was measured."""

from collections.abc import Sequence

from gpucheck.measure.results import Pair, Results

NAMED = 4


def pair_subject(results: Results, pairs: Sequence[Pair]) -> str:
    """``pair:<bus id>-<bus id>`` where all ordered pairs are the same two devices, else ``host``."""
    ends = {frozenset(pair) for pair in pairs}
    if len(ends) != 1:
        return "host"
    a, b = min(pairs)[0], min(pairs)[1]
    if a == b:
        return f"gpu:{results.devices[a].label}"
    return f"pair:{results.devices[a].label}-{results.devices[b].label}"


def pairs_in_words(results: Results, pairs: Sequence[Pair]) -> str:
    """``GPU 0 to 1, 1 to 0 and 4 more``."""
    words = [f"{results.devices[a].index} to {results.devices[b].index}" for a, b in pairs]
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return f"GPU {', '.join(words[:NAMED])}{more}"
