"""Rounds of copies that run at the same time and share no resource."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet


def rounds(
    items: Sequence[AbstractSet[str]], pairs: Sequence[tuple[int, int]], *, ring: bool = False
) -> tuple[tuple[int, ...], ...]:
    """Positions of ``items`` by round: each item joins the first round in which its resources are free.

    items: the resources of each copy. pairs: the (source, destination) of each copy. ring: a device may send and
    receive in one round; else it is in one pair. Both orders give the fewest rounds if all paths are identical, as
    with NVSwitch.
    """
    count = max(map(max, pairs), default=0) + 1
    if not ring:
        items = [item | {f"device:{end}" for end in pair} for item, pair in zip(items, pairs, strict=True)]
    taken: list[set[str]] = []
    members: list[list[int]] = []
    for i in sorted(range(len(items)), key=lambda i: (*_turn(*pairs[i], count, ring=ring), pairs[i])):
        place = next((n for n, resources in enumerate(taken) if resources.isdisjoint(items[i])), len(taken))
        if place == len(taken):
            taken.append(set())
            members.append([])
        taken[place] |= items[i]
        members[place].append(i)
    return tuple(tuple(sorted(round_)) for round_ in members)


def _turn(a: int, b: int, count: int, *, ring: bool) -> tuple[bool, int]:
    """Return the distance around the circle; without ring the direction, and its round of a round-robin tournament."""
    if ring:
        return False, (b - a) % count
    days = count - 1 + count % 2
    return a > b, (2 * min(a, b) if max(a, b) == days else a + b) % days
