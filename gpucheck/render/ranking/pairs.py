"""Which GPUs or pairs a group of numbers is about, as text: ``all pairs with GPU 3``, ``0-1, 0-2 and 26 more``."""

from collections.abc import Iterable, Iterator, Sequence

from gpucheck.model.diagnosis.ranking import Predicted
from gpucheck.render.words import ranges

Pair = frozenset[int]
# Longer texts are lists instead, so that a row of a table fits 80 columns.
LONGEST = 30
NAMED = 2
# A part of all GPUs that is named instead of the pairs: more than a few are no short text.
FEW = 3
RUNS = {"collective": ("1 run", "runs"), "flows": ("1 set of copies", "sets of copies")}


def describe(group: Sequence[Predicted], everything: Sequence[Predicted]) -> str:
    """Return the text. everything: all numbers of the same quantity, the group among them."""
    if any(one.b is None for one in everything):
        return _gpus(group, everything)
    ways, known = ({(one.a, one.b or 0) for one in some} for some in (group, everything))
    is_sum = group[0].quantity.endswith("both-ways")
    if not is_sum and any((b, a) not in ways for a, b in ways):
        return _directed(ways, known)
    pairs, all_pairs = _undirected(ways), _undirected(known)
    short = next((text for text in _structures(pairs, all_pairs) if len(text) <= LONGEST), "")
    return short or _listed([f"{min(pair)}-{max(pair)}" for pair in sorted(pairs, key=sorted)])


def _gpus(group: Sequence[Predicted], everything: Sequence[Predicted]) -> str:
    if group[0].quantity in RUNS:
        one, several = RUNS[group[0].quantity]
        return one if len(group) == 1 else f"{len(group)} {several}"
    gpus, known = ({one.a for one in some} for some in (group, everything))
    if gpus == known and len(gpus) > 1:
        return f"all {len(gpus)} GPUs"
    text = f"GPU {ranges(sorted(gpus))}"
    return text if len(text) <= LONGEST else f"{len(gpus)} of {len(known)} GPUs"


def _directed(ways: set[tuple[int, int]], known: set[tuple[int, int]]) -> str:
    if ways == known and len(ways) > 1:
        return f"all {len(ways)} directions"
    for end, word in ((0, "from"), (1, "to")):
        ends = {way[end] for way in ways}
        text = f"{word} GPU {ranges(sorted(ends))}"
        if ways == {way for way in known if way[end] in ends} and len(ways) > 1 and len(text) <= LONGEST:
            return text
    return _listed([f"{a} to {b}" for a, b in sorted(ways)])


def _undirected(ways: Iterable[tuple[int, int]]) -> set[Pair]:
    return {frozenset(way) for way in ways}


def _structures(pairs: set[Pair], known: set[Pair]) -> Iterator[str]:
    """Yield texts that mean exactly these pairs, the plainest first."""
    if len(pairs) < 2:
        return
    if pairs == known:
        yield f"all {len(pairs)} pairs"
    rest = sorted(sorted(pair) for pair in known - pairs)
    if 0 < len(rest) <= NAMED < len(pairs):
        yield f"all but {', '.join(f'{a}-{b}' for a, b in rest)}"
    for some, words in ((pairs, "all pairs with"), (known - pairs, "all but pairs with")):
        gpus = _whole(some, known)
        if 0 < len(gpus) <= FEW and some == {pair for pair in known if pair & gpus}:
            yield f"{words} GPU {ranges(sorted(gpus))}"
    inside = _components(pairs)
    if pairs == {pair for pair in known if any(pair <= part for part in inside)}:
        yield _of_groups("within", inside)
    across = _components(known - pairs, {gpu for pair in known for gpu in pair})
    if pairs == {pair for pair in known if not any(pair <= part for part in across)}:
        yield _of_groups("between", across)


def _whole(pairs: set[Pair], known: set[Pair]) -> frozenset[int]:
    """GPUs of which every known pair is among the pairs."""
    return frozenset().union(*pairs) - frozenset().union(*(known - pairs))


def _of_groups(word: str, parts: Sequence[Pair]) -> str:
    """``between GPU 0-3 and GPU 4-7``, ``within GPU 0-3``, ``within 9 groups of 8``; long if there is no short text."""
    names = [f"GPU {ranges(sorted(part))}" for part in parts]
    text = " and ".join(names) if word == "between" else f", {word} ".join(names)
    if len(parts) <= FEW and len(text) + len(word) < LONGEST:
        return f"{word} {text}"
    sizes = {len(part) for part in parts}
    return (
        f"{word} {len(parts)} groups of {ranges(sorted(sizes))}"
        if len(sizes) == 1 and sizes != {1}
        else " " * (LONGEST + 1)
    )


def _components(pairs: set[Pair], gpus: Iterable[int] = ()) -> list[Pair]:
    """GPUs that the pairs connect; those of `gpus` that are in no pair are parts of their own."""
    part_of = {gpu: {gpu} for gpu in (*gpus, *(gpu for pair in pairs for gpu in pair))}
    for pair in pairs:
        a, b = min(pair), max(pair)
        if part_of[a] is not part_of[b]:
            part_of[a] |= part_of[b]
            part_of |= dict.fromkeys(part_of[b], part_of[a])
    return sorted({frozenset(part) for part in part_of.values()}, key=min)


def _listed(names: Sequence[str]) -> str:
    """``0-1, 0-2 and 26 more``."""
    if len(names) <= NAMED + 1 and len(", ".join(names)) <= LONGEST:
        return ", ".join(names)
    texts = (", ".join(names[:count]) + f" and {len(names) - count} more" for count in (NAMED, 1))
    return min(texts, key=lambda text: len(text) > LONGEST)
