"""Which copies run at the same time: as few rounds as the busiest resource allows, and none shares anything.

A round is a set of items whose resources are disjoint, so rounds are the colours of a conflict graph. Three ways to
colour are tried, the first that reaches the lower bound wins: the items in cyclic order (optimal where every GPU
reaches every other alike, as through NVSwitch), Kempe chains (optimal, by König's theorem, where each item uses one
resource of each of two kinds), and a tabu search that starts from the better of the two.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations
from random import Random

Resources = Sequence[AbstractSet[str]]
TABU_STEPS = 4000
LARGEST = 20  # resources that are looked at in threes


def rounds(items: Resources, order: Sequence[tuple[int, int]] = ()) -> tuple[tuple[int, ...], ...]:
    """Positions of ``items`` by round. order: the (source, destination) of each item, which hints at a good start."""
    if not items:
        return ()
    bound = lower_bound(items)
    best = min((_first_fit(items, _cyclic(items, order)), _first_fit(items, _busiest(items))), key=_used)
    if _used(best) > bound:
        best = min(best, _kempe(items), key=_used)
    while _used(best) > bound:
        fewer = _tabu(items, _used(best) - 1, best)
        if fewer is None:
            break
        best = fewer
    return tuple(tuple(i for i, c in enumerate(best) if c == colour) for colour in range(_used(best)))


def lower_bound(items: Resources) -> int:
    """The fewest rounds that any schedule needs: the largest set found of which no two can run together.

    Such a set is all users of one resource, and whatever else shares something with each of them. Besides, of an odd
    number of GPUs whose pairs each take two, one must rest in every round.
    """
    use = _use(items)
    bound = max((len(_crowd(items, users)) for users in use.values()), default=min(1, len(items)))
    bound = max(bound, _triangle(use.values()))
    gpus = {resource for resource in use if resource.startswith("out:")}
    if gpus and all(len(gpus & item) > 1 for item in items):
        bound = max(bound, -(-len(items) // (len(gpus) // 2)))
    return bound


def _crowd(items: Resources, users: Sequence[int]) -> list[int]:
    """The users of one resource, and the items that share something with each of them and with one another."""
    crowd, inside = list(users), set(users)
    for i, item in enumerate(items):
        if i not in inside and all(not item.isdisjoint(items[j]) for j in crowd):
            crowd.append(i)
    return crowd


def _triangle(users: Iterable[Sequence[int]]) -> int:
    """The most items that use two of three resources: any two of them meet."""
    sets = sorted({sum(1 << i for i in members) for members in users}, key=lambda s: (-s.bit_count(), s))[:LARGEST]
    return max(((a & b | a & c | b & c).bit_count() for a, b, c in combinations(sets, 3)), default=0)


def _use(items: Resources) -> dict[str, list[int]]:
    use: dict[str, list[int]] = {}
    for i, item in enumerate(items):
        for resource in item:
            use.setdefault(resource, []).append(i)
    return use


def _used(colours: Sequence[int]) -> int:
    return max(colours) + 1


def _cyclic(items: Resources, order: Sequence[tuple[int, int]]) -> list[int]:
    """By distance around the circle; pairs both ways at once by the circle method of round-robin tournaments."""
    if len(order) != len(items):
        return list(range(len(items)))
    count = max(max(pair) for pair in order) + 1
    ordered = len(set(map(frozenset, order))) < len(order)
    if ordered or count < 2:
        return sorted(range(len(items)), key=lambda i: ((order[i][1] - order[i][0]) % count, order[i]))
    even = count + count % 2
    day = {}
    for turn in range(even - 1):
        ring = [even - 1, *((turn + k) % (even - 1) for k in range(even - 1))]
        for k in range(even // 2):
            day[frozenset((ring[k], ring[-1 - k]))] = turn
    return sorted(range(len(items)), key=lambda i: (day[frozenset(order[i])], order[i]))


def _busiest(items: Resources) -> list[int]:
    use = {resource: len(users) for resource, users in _use(items).items()}
    return sorted(range(len(items)), key=lambda i: sorted(-use[r] for r in items[i]))


def _first_fit(items: Resources, order: Iterable[int]) -> list[int]:
    taken: list[set[str]] = []
    colours = [0] * len(items)
    for i in order:
        colour = next((c for c, used in enumerate(taken) if used.isdisjoint(items[i])), len(taken))
        if colour == len(taken):
            taken.append(set())
        taken[colour] |= items[i]
        colours[i] = colour
    return colours


def _kempe(items: Resources) -> list[int]:
    """Items one by one; where no colour is free at all its resources, the two best are swapped along a chain."""
    colours = [-1] * len(items)
    at: dict[tuple[str, int], int] = {}
    limit = lower_bound(items)
    for i, item in enumerate(items):
        free = [{c for c in range(limit) if (r, c) not in at} for r in item]
        both = set.intersection(*free) if free else {0}
        if not both and all(free):
            both = _swap(items, colours, at, i, free)
        colour = min(both) if both else next(c for c in range(len(items)) if all((r, c) not in at for r in item))
        colours[i] = colour
        at.update({(r, colour): i for r in item})
    names = {c: n for n, c in enumerate(sorted(set(colours)))}
    return [names[c] for c in colours]


def _swap(
    items: Resources, colours: list[int], at: dict[tuple[str, int], int], item: int, free: list[set[int]]
) -> set[int]:
    """Make a colour free at all resources of the item by exchanging two along one chain; empty if none helps."""
    resources = list(items[item])
    for a in sorted(free[0]):
        for b in sorted(set().union(*free[1:]) - {a}):
            chain = _chain(items, colours, at, [r for r in resources if (r, a) in at], (a, b))
            if any((r, b) in at and at[r, b] in chain for r in resources if (r, a) not in at):
                continue
            for i in chain:
                for r in items[i]:
                    del at[r, colours[i]]
            for i in chain:
                colours[i] = b if colours[i] == a else a
                at.update({(r, colours[i]): i for r in items[i]})
            if all((r, a) not in at for r in resources):
                return {a}
    return set()


def _chain(
    items: Resources, colours: list[int], at: dict[tuple[str, int], int], start: list[str], two: tuple[int, int]
) -> set[int]:
    """Every item of the two colours that is linked to the resources at the start."""
    chain: set[int] = set()
    todo = [at[r, two[0]] for r in start]
    while todo:
        i = todo.pop()
        if i in chain:
            continue
        chain.add(i)
        other = two[1] if colours[i] == two[0] else two[0]
        todo += [at[r, other] for r in items[i] if (r, other) in at]
    return chain


def _tabu(items: Resources, count: int, start: Sequence[int]) -> list[int] | None:
    """A colouring with ``count`` colours, by moving items out of conflicts; None if the search does not find one."""
    random = Random(len(items))  # noqa: S311 - a search, repeatable on purpose
    neighbours = [
        [j for j in range(len(items)) if j != i and not items[i].isdisjoint(items[j])] for i in range(len(items))
    ]
    colours = [c if c < count else random.randrange(count) for c in start]
    clashes = [[0] * count for _ in items]
    for i, near in enumerate(neighbours):
        for j in near:
            clashes[i][colours[j]] += 1
    tabu = [[0] * count for _ in items]
    for step in range(TABU_STEPS):
        bad = [i for i in range(len(items)) if clashes[i][colours[i]]]
        if not bad:
            return colours
        moves = [
            (clashes[i][c] - clashes[i][colours[i]], random.random(), i, c)
            for i in bad
            for c in range(count)
            if c != colours[i] and (tabu[i][c] <= step or clashes[i][c] == 0)
        ]
        if not moves:
            continue
        _, _, i, c = min(moves)
        tabu[i][colours[i]] = step + len(bad) // 2 + random.randrange(10)
        for j in neighbours[i]:
            clashes[j][colours[i]] -= 1
            clashes[j][c] += 1
        colours[i] = c
    return None
