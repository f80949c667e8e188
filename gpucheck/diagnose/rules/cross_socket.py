"""Pairs between sockets: slower than the rest, and whether that is within what a socket link does."""

from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Diagnosis, Rule, finding, listed, middle, span
from gpucheck.diagnose.machine import Machine, Pair
from gpucheck.diagnose.rates import Rate
from gpucheck.diagnose.rules.slow_uplink import islands
from gpucheck.model.verdict import Verdict

SLOWER = 0.93
FAST = 0.93
# Below this part of the near pairs a socket link is no longer an explanation that needs no proof.
PLAUSIBLE = 0.25


def judge(case: Case) -> Iterator[Diagnosis]:
    """By class or NUMA node; where every pair reads SYS, by two groups that are fast inside and alike between."""
    m = case.machine
    rates = {p: case.rates.all[p] for p in case.open(case.rates.all) if not m.is_nvlink(p) and m.direct[p] is not False}
    far = [pair for pair in rates if m.crosses_nodes(pair)]
    near = [pair for pair in rates if m.crosses_nodes(pair) is False]
    groups: list[frozenset[int]] = []
    if not near and len(far) in (0, len(rates)):
        groups = _two_groups(m, rates)
        far = [pair for pair in rates if groups and not any(set(pair) <= group for group in groups)]
        near = [pair for pair in rates if groups and pair not in far]
    if not far or not near:
        return
    usual, value = middle(rates[p].gb_s for p in near), middle(rates[p].gb_s for p in far)
    if not value < SLOWER * usual:
        return
    low = [pair for pair in far if rates[pair].level in ("low", "bad")]
    unsure = not low and value < PLAUSIBLE * usual and any(rates[pair].goal is None for pair in far)
    names = " and ".join("{" + ", ".join(map(str, sorted(group))) + "}" for group in groups)
    goals = sorted({rates[pair].goal.basis for pair in far if rates[pair].goal})  # type: ignore[union-attr]
    yield Diagnosis(
        finding(
            RULE.name,
            Verdict.WARN if low or unsure else Verdict.PASS,
            "cross-socket",
            "likely" if not groups else "possible",
            subject="host",
            seen=f"{span(rates[pair].gb_s for pair in far)} GB/s across, {span(rates[pair].gb_s for pair in near)} "
            f"inside",
            why="pairs that cross the link between sockets are slower than pairs on one socket"
            + (f" (groups by speed: {names})" if names else "")
            + (": below what this CPU's socket link should carry" if low else ": the expected limit, not a fault"),
            fix="" if not low else "set the socket links to full width and speed in the BIOS",
            evidence=[f"across: {listed(far)}", *goals[:2]],
        ),
        frozenset(far if low else []),
    )


def _two_groups(m: Machine, rates: dict[Pair, Rate]) -> list[frozenset[int]]:
    """Two groups of at least two GPUs, every pair inside faster than every pair between."""
    if m.host.sockets == 1 or not rates:
        return []
    most = max(rate.gb_s for rate in rates.values())
    groups = islands(m, [pair for pair, rate in rates.items() if rate.gb_s >= FAST * most])
    if len(groups) != 2 or min(map(len, groups)) < 2:
        return []
    inside = [rate.gb_s for pair, rate in rates.items() if any(set(pair) <= group for group in groups)]
    between = [rate.gb_s for pair, rate in rates.items() if not any(set(pair) <= group for group in groups)]
    return groups if between and min(inside) > max(between) else []


RULE = Rule(
    name="cross-socket",
    order=60,
    title="Pairs between sockets",
    looks_at="matrix (SYS), gpus.numa_node, host.cpu, host.sockets, direct pairs",
    formula="across < 0.93 x inside; a fault only below 0.85 x min(0.78 x raw x 0.85, the CPU's planning figure), "
    "which "
    "is a lower bound and never a ceiling",
    sources=("NVIDIA/nccl src/graph/topo.h", "rtx6kpro pcie-bandwidth", "BVLC/caffe#3319"),
    cases=("RTX 4090 P2P write-up, patched driver (healthy)", "rtx6kpro pcie-bandwidth"),
    judge=judge,
)
