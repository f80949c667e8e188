"""Where the sources of a topology disagree, or have no answer: one finding for all pairs with the same problem."""

from collections.abc import Iterator, Sequence

from gpucheck.model.finding import Finding
from gpucheck.model.finding.about import About
from gpucheck.topology.view import NOT_OFFERED, View

CHECK = "topology"
SHOWN = 12
Pairs = Sequence[tuple[int, int]]
DISAGREE = "A virtual machine's PCI tree is made up, or the firmware reports wrong NUMA nodes."
COMPARE = (
    "Compare lspci -tv and /sys/bus/pci/devices/*/numa_node with nvidia-smi topo -m.\nTrust the measured bandwidth."
)


def pair_findings(view: View) -> Iterator[Finding]:
    """Yield at most one finding for each kind of problem and each combination of values."""
    groups: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for pair in view.pairs:
        for problem in _problems(view, pair):
            groups.setdefault(problem, []).append(pair)
    for (kind, one, other), pairs in groups.items():
        yield _finding(view, kind, one, other, pairs)
    yield from _staged(view)


def _problems(view: View, pair: tuple[int, int]) -> Iterator[tuple[str, str, str]]:
    (nvml, back), sysfs = view.ancestors(*pair), view.sysfs(*pair)
    if view.cell(*pair) is None:
        yield "unknown", "", ""
    if nvml and back and nvml != back:
        yield "contradiction", nvml, back
    elif nvml and sysfs and nvml != sysfs:
        yield "sources", nvml, sysfs
    unknown = view.unknown_links(*pair)
    if unknown is not None:
        yield "links", unknown, ""
        return
    ends = view.joint(*pair).ends
    if ends[0] != ends[1]:
        yield "ends", str(min(ends)), str(max(ends))


def _finding(view: View, kind: str, one: str, other: str, pairs: Pairs) -> Finding:
    of = f" for {len(pairs)} pairs" if len(pairs) > 1 else ""
    about = _about(view, pairs)
    if kind == "unknown":
        why = f"path class unknown{of}: NVML reports none, and sysfs shows neither a shared bridge nor NUMA nodes"
        return about.unknown(why, "gpucheck verify --only inventory --verbose")
    if kind == "links":
        why = f"NVLinks unknown{of}: {one}, so the class shown may be wrong"
        if one == NOT_OFFERED:
            return about.skips(f"not run: {why}")
        return about.unknown(why, "gpucheck verify --only nvlink", because_of="nvlink")
    if kind == "contradiction":
        seen = f"NVML reports {one} one way and {other} the other{of}"
        return about.warns(seen, "one class", DISAGREE, COMPARE, None)
    if kind == "sources":
        seen = f"NVML reports {one}, the bridge chain in sysfs is {other}{of}"
        return about.warns(seen, "one class", DISAGREE, COMPARE, None)
    why = "The two GPUs report different numbers of active NVLinks between them; NCCL plans with one of the two."
    fix = "nvidia-smi nvlink -s\nReseat the bridge, or reset both GPUs."
    return about.warns(f"{one} NVLinks at one end, {other} at the other{of}", "the same number", why, fix, None)


def _staged(view: View) -> Iterator[Finding]:
    staged = [pair for pair in view.pairs if view.refused(*pair, view.cell(*pair))]
    if staged:
        status = ", ".join(dict.fromkeys(str(view.p2p(*pair)) for pair in staged))
        why = (
            "not applicable: copies between these GPUs are staged through host memory, so no peer bandwidth is expected"
        )
        seen = f"P2P status {status} on {len(staged)} of {len(view.pairs)} pairs"
        yield _about(view, staged, subject="host").skips(why, seen)


def _about(view: View, pairs: Pairs, *, subject: str | None = None) -> About:
    names = [view.subject(*pair) for pair in pairs]
    lines = [
        f"{name}: NVML {view.ancestor(*pair) or 'not reported'}, sysfs {view.sysfs(*pair) or 'not visible'}, "
        f"NVLinks {'/'.join(map(str, view.joint(*pair).ends))}, P2P {view.p2p(*pair) or 'not reported'}"
        for name, pair in zip(names[:SHOWN], pairs[:SHOWN], strict=True)
    ]
    more = [f"and {len(names) - SHOWN} more pairs"] if len(names) > SHOWN else []
    return About(check=CHECK, subject=subject or (names[0] if len(names) == 1 else "host"), evidence=(*lines, *more))
