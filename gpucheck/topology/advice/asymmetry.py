"""Differences between the GPUs or pairs of a host, one sentence each, for choosing the GPUs of a job."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

from gpucheck.model.topology import Topology
from gpucheck.topology.islands import islands
from gpucheck.topology.view import DISTANCE
from gpucheck.topology.wiring.inferred import MOST_SWITCH_MEMBERS, nvlinks_of

NAMED = 6
UNKNOWN = 9


def asymmetries(topology: Topology) -> tuple[str, ...]:
    """Return one sentence for each difference between the GPUs; none if all pairs are equal."""
    return (*_meshes(topology), *_islands(topology), *_sides(topology), *_far_cards(topology))


def links_of(topology: Topology, i: int, j: int) -> int:
    """Return how many NVLinks join two positions."""
    return nvlinks_of(topology.matrix[i][j])


def _meshes(topology: Topology) -> Iterator[str]:
    counts: dict[int, list[str]] = {}
    for pair in topology.pairs:
        counts.setdefault(nvlinks_of(pair.cls), []).append(f"{pair.a}-{pair.b}")
    if len(counts) < 2:
        return
    joined = sorted((links for links in counts if links), reverse=True)
    parts = [f"{len(counts[links])} by NV{links} ({_named(counts[links])})" for links in joined]
    without = f", {len(counts[0])} have none ({_named(counts[0])})" if 0 in counts else ""
    yield f"NVLink joins {len(topology.pairs) - len(counts.get(0, ()))} of {len(topology.pairs)} pairs: " + (
        ", ".join(parts) + without
    )
    totals = {gpu.index: _active(topology, i) for i, gpu in enumerate(topology.gpus)}
    linked = {index: links for index, links in totals.items() if links}
    if len(set(linked.values())) > 1:
        usual, _ = Counter(linked.values()).most_common(1)[0]
        differing = [f"GPU {index} has {links}" for index, links in linked.items() if links != usual]
        yield f"Active NVLinks: {_named(differing)}, the others have {usual}"


def _active(topology: Topology, i: int) -> int:
    """Return the active NVLinks of a GPU. Through NVSwitch the same links lead to every peer, so they count once."""
    label, wiring = f"GPU{topology.gpus[i].index}", topology.wiring
    if wiring is not None and wiring.told:
        return sum(bundle.links for bundle in wiring.nvlinks if label in (bundle.a, bundle.b))
    links = [links_of(topology, i, j) for j in range(len(topology.gpus)) if j != i]
    return max(links) if len(topology.gpus) > MOST_SWITCH_MEMBERS and all(links) else sum(links)


def _islands(topology: Topology) -> Iterator[str]:
    """Groups that NVLink joins among themselves only."""
    places = range(len(topology.gpus))
    joined = (pair for pair in combinations(places, 2) if links_of(topology, *pair))
    groups = [[topology.gpus[i].index for i in sorted(group)] for group in islands(places, joined)]
    together = [group for group in groups if len(group) > 1]
    if together and len(groups) > 1:
        words = ", ".join("{" + ", ".join(map(str, group)) + "}" for group in together[:NAMED])
        alone = [str(group[0]) for group in groups if len(group) == 1]
        yield f"NVLink islands: {words}" + (f"; without NVLink to any peer: {_named(alone)}" if alone else "")


def _sides(topology: Topology) -> Iterator[str]:
    """Different numbers of GPUs on the NUMA nodes."""
    nodes = Counter(gpu.numa_node for gpu in topology.gpus if gpu.numa_node is not None)
    if len(set(nodes.values())) > 1:
        counts = ", ".join(f"node {node} has {count}" for node, count in sorted(nodes.items()))
        yield f"GPUs by NUMA node: {counts}"


def _far_cards(topology: Topology) -> Iterator[str]:
    """GPUs whose nearest network card is farther than that of the others."""
    if not topology.nics:
        return
    near = {
        gpu.index: min((_distance(nic.classes[i]) for nic in topology.nics), default=UNKNOWN)
        for i, gpu in enumerate(topology.gpus)
    }
    best = min(near.values())
    local = [index for index, distance in near.items() if distance == best]
    far = [index for index in near if index not in local]
    if far and best < DISTANCE["NODE"]:
        have, lack = ("has" if len(local) == 1 else "have"), ("does" if len(far) == 1 else "do")
        where = "on the same PCIe switch or host bridge"
        yield f"GPU {_ranges(local)} {have} a network card {where}; GPU {_ranges(far)} {lack} not"


def _distance(cls: str | None) -> int:
    return DISTANCE.get(cls or "", UNKNOWN)


def _named(words: Sequence[str]) -> str:
    return ", ".join(words[:NAMED]) + (f" and {len(words) - NAMED} more" if len(words) > NAMED else "")


def _ranges(numbers: Sequence[int]) -> str:
    """Return ``0, 1, 4-7``: three and more in a row are a range."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [[f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(number) for number in run] for run in runs]
    return ", ".join(word for part in parts for word in part)
