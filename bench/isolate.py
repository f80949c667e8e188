"""Rounds, tests and wall time of a search for bad nodes, against bisection and all pairs; seconds that gate adds.

The fleets are those of ``gpucheck isolate --simulate-fleet``: 10 to 40 % less bandwidth, 1 % noise, and what a line
states. Nothing is measured on GPUs. The tests of a round run at the same time: it lasts 20 s, and 80 s if a test does
not end (the default of --timeout). Wanted: 1 round for a healthy fleet, 4 for 2 % of bad nodes, exact in 99.9 % of the
seeds, no false accusation.

bisection: all together, groups of about sqrt(N), halves of the slow ones, then each suspect with a good node.
all pairs: N - 1 rounds (round robin); a node that is bad in more than half of its tests is named. One seed of 50.
gate: real processes behind a simulated ssh, whose quick checks last 2 s and whose tests last 8 s.

usage: python bench/isolate.py [--seeds 200] >bench/results/isolate-DATE.md
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from gpucheck.isolate.search import Known, Limits, search
from gpucheck.isolate.simulated import GB_S, SimulatedFleet, parse_spec
from gpucheck.model.isolation import GroupTest

PROMISED = "20 slow nodes"  # five times as many seeds
AT_TIMES, REPEATS = "4 slow at times", (2, 4, 8)
CASES = [
    ("healthy", "nodes=1024"),
    ("1 slow node", "nodes=16,bad=1"),
    ("2 slow nodes", "nodes=64,bad=2"),
    ("5 slow nodes", "nodes=232,bad=5"),
    (PROMISED, "nodes=1024,bad=20"),
    ("20 slow nodes, loss 10 %", "nodes=1024,bad=20,loss=0.1"),
    ("5 that hang, 5 that die", "nodes=1024,hangs=5,dies=5"),
    ("5 that return wrong data", "nodes=1024,wrong=5"),
    (AT_TIMES, "nodes=1024,sometimes=4"),
    ("1 slow connection", "nodes=128,links=1"),
    ("1 slow switch", "nodes=1024,switches=1"),
    ("1 slow rail", "nodes=1024,nics=1"),
    ("slow only together (>64)", "nodes=1024,together=64"),
]
MOST_PAIRS = 300  # nodes; all pairs of more take minutes a seed
ROUND_S, HUNG_S = 20.0, 80.0
LIMIT = 0.95 * GB_S
SSH = """#!/bin/sh
for word; do script=$word; done
exec setsid -w sh -c "$script"
"""
GPUCHECK = """#!/bin/sh
case $1 in
verify) sleep 2; echo '{"verdict": "pass", "findings": []}' ;;
*) sleep 8
   [ "$GROUP_RANK" != 0 ] || echo '{"schema": "gpucheck.collectives/1", "host": "a", "simulated": true, "started": "",
"seconds": 8, "verdict": "pass", "findings": [], "counts": {}, "backend": "nccl", "kind": "", "ranks": 2, "nodes": 2,
"devices": [], "versions": {}, "results": [
{"operation": "all_reduce", "size_bytes": 8192, "variant": "as is", "time_us": 30.0, "busbw_gb_s": 1.0},
{"operation": "all_reduce", "size_bytes": 134217728, "variant": "as is", "time_us": 9.0, "busbw_gb_s": 390.0}]}' ;;
esac
"""


Named = frozenset[object]  # nodes, switches, cards, connections


class Fleet(SimulatedFleet):
    """Counts what is run on it."""

    rounds, tests, seconds = 0, 0, 0.0

    def run(self, tests: Sequence[tuple[str, ...]]) -> list[GroupTest]:
        """Return the results of one round."""
        results = super().run(list(tests))
        self.rounds, self.tests = self.rounds + 1, self.tests + len(tests)
        self.seconds += HUNG_S if any(one.state == "hung" for one in results) else ROUND_S
        return results


def ours(fleet: Fleet, repeat: int = 1) -> Named:
    """The search of gpucheck isolate --expected --repeat."""
    out = search(Known(fleet.nodes, fleet.switch_of, Limits(GB_S, repeat=repeat)), fleet.run)
    # A group that has a bad node is slow, and the finding names no node of it.
    together = ("together",) if out.together and not set(out.together) & set(fleet.truth.bad) else ()
    return frozenset((*out.nodes, *out.links, *out.switches, *out.nics, *together))


def truth(fleet: Fleet) -> Named:
    """What a search can name."""
    drawn, together = fleet.truth, ("together",) if fleet.spec.together else ()
    return frozenset((*drawn.bad, *drawn.links, *drawn.switches, *drawn.nics, *together))


def is_end(named: object, fleet: Fleet) -> bool:
    """Whether a named connection ends at a bad node: the finding states that such a node is the other possibility."""
    return isinstance(named, tuple) and bool(set(named) & set(fleet.truth.bad))


def is_good(result: GroupTest) -> bool:
    """Return whether a test ended and was not slow."""
    return result.state == "done" and (result.busbw_gb_s or 0.0) >= LIMIT


def bisection(fleet: Fleet) -> Named:
    """Groups are halved as long as they are slow."""
    nodes = tuple(fleet.nodes)
    if all(map(is_good, fleet.run([nodes]))):
        return frozenset()
    size = max(2, round(len(nodes) ** 0.5))
    groups = [nodes[at : at + size] for at in range(0, len(nodes), size)]
    good: list[str] = []
    suspects: list[str] = []
    while groups:
        slow = []
        for group, result in zip(groups, fleet.run(groups), strict=True):
            if is_good(result):
                good += group
            else:
                slow.append(group)
        suspects += [name for group in slow if len(group) <= 2 for name in group]
        wide = [group for group in slow if len(group) > 2]
        groups = [half for group in wide for half in (group[: len(group) // 2], group[len(group) // 2 :]) if half]
        suspects += [group[0] for group in groups if len(group) == 1]
        groups = [group for group in groups if len(group) > 1]
    if not suspects or not good:
        return frozenset()
    results = fleet.run([(name, good[at % len(good)]) for at, name in enumerate(suspects)])
    return frozenset(name for name, result in zip(suspects, results, strict=True) if not is_good(result))


def all_pairs(fleet: Fleet) -> Named:
    """Every node with every other one."""
    ring: list[str | None] = [*fleet.nodes, *([None] if len(fleet.nodes) % 2 else [])]
    bad: Counter[str] = Counter()
    for _ in range(len(ring) - 1):
        pairs = [(a, b) for a, b in zip(ring, reversed(ring), strict=True)][: len(ring) // 2]
        for one in fleet.run([(a, b) for a, b in pairs if a and b]):
            if not is_good(one):
                bad.update(one.nodes)
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return frozenset(name for name, count in bad.items() if count > (len(fleet.nodes) - 1) / 2)


def row(what: str, spec: str, how: str, strategy: Callable[[Fleet], Named], seeds: int) -> str:
    """One strategy on one kind of fleet."""
    rounds, tests, seconds, exact, false = [], [], [], 0, 0
    for seed in range(seeds):
        fleet = Fleet(parse_spec(spec)._replace(seed=seed))
        named = strategy(fleet)
        rounds.append(fleet.rounds)
        tests.append(fleet.tests)
        seconds.append(fleet.seconds)
        exact += named == truth(fleet)
        false += len([one for one in named - truth(fleet) if not is_end(one, fleet)])
    span = f"{statistics.median(rounds):g} (at most {max(rounds)})"
    mean, minutes = f"{statistics.mean(tests):,.0f}", f"{statistics.mean(seconds) / 60:.1f}"
    return f"| {what} | {spec} | {how} | {span} | {mean} | {minutes} | {exact} of {seeds} | {false} |"


def gate_seconds(nodes: int, folder: Path) -> float:
    """How long gpucheck gate takes until the command starts, on so many nodes."""
    for name, text in (("ssh", SSH), ("gpucheck-node", GPUCHECK)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    names = ",".join(f"n{at}" for at in range(nodes))
    command = [sys.executable, "-m", "gpucheck", "gate", "--nodes", names, "--remote", "gpucheck-node"]
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    began = time.monotonic()
    subprocess.run(
        [*command, "--lists", str(folder), "--", "true"], env=environment, check=True, stderr=subprocess.DEVNULL
    )
    return time.monotonic() - began


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    seeds = parser.parse_args().seeds
    print("# Rounds and tests of a search for bad nodes, SIMULATED fleets\n")
    print(f"{time.strftime('%Y-%m-%d')}, `python bench/isolate.py --seeds {seeds}`. Nothing was measured on GPUs.\n")
    print("The tests of a round run at the same time: 20 s a round, 80 s if a test does not end.\n")
    print("| fault | fleet | search | rounds | tests | minutes | exact | false accusations |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for what, spec in CASES:
        print(row(what, spec, "gpucheck", ours, 5 * seeds if what == PROMISED else seeds), flush=True)
        for repeat in REPEATS if what == AT_TIMES else ():
            print(row(what, spec, f"gpucheck --repeat {repeat}", partial(ours, repeat=repeat), seeds), flush=True)
        print(row(what, spec, "bisection", bisection, seeds), flush=True)
        if parse_spec(spec).nodes <= MOST_PAIRS:
            print(row(what, spec, "all pairs", all_pairs, max(1, seeds // 50)), flush=True)
    print("\n| nodes | seconds that `gate` adds to a healthy job (quick checks of 2 s, tests of 8 s, simulated) |")
    print("| ---: | ---: |")
    for nodes in (2, 16, 128):
        with tempfile.TemporaryDirectory() as folder:
            print(f"| {nodes} | {gate_seconds(nodes, Path(folder)):.1f} |", flush=True)


if __name__ == "__main__":
    main()
