"""Recall and precision of the fleet's outlier detection, on simulated fleets with a known truth.

Each line: a fault, how many hosts have it, and what the merge named. A host counts as named when a metric of it
stands out. Wanted: recall and precision >= 0.99 for a loss of 10 % or more.

Noise is relative, normal, and independent from number to number. ``sample``: 5 % of one sample, and a reported number
is the median of 15 of them, as gpucheck measures. ``number``: every reported number itself is off by 5 %, which is
harsher than any measurement gpucheck would report. A pair is then only four numbers, which 5 % of noise drown: the
table shows it rather than leaving it out.

usage: python bench/fleet_detection.py [--hosts 10000] [--seed 1]
"""

import argparse
import sys
import time

import msgspec
import simulated_fleet as simulated

from gpucheck import fleet

NOISES = {"sample": simulated.NOISE, "number": 0.05}
FAULTS = [
    *(f"slow-host:loss={loss}" for loss in (5, 10, 20)),
    *(f"slow-gpu:gpu=3,loss={loss}" for loss in (5, 10, 20)),
    *(f"slow-pair:pair=0-1,loss={loss}" for loss in (5, 10, 20, 50)),
]
SHARES = (1, 5, 20)


def score(healthy, hosts, fault, noise, seed):
    """Recall, precision, and how many hosts were named."""
    planned = simulated.plan(hosts, [fault], seed)
    made = (simulated.report(host, healthy, noise) for host in planned)
    merged = fleet.merge(row for each in made for row in fleet.rows_of(msgspec.json.encode(each), f"{each.host}.json"))
    sick = {host.name for host in planned if host.fault}
    named = {outlier.host for outlier in merged.outliers}
    right = len(sick & named)
    return right / len(sick), right / len(named) if named else 1.0, len(named)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--profile", default="hgx-h100-x8")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    healthy = simulated.template(options.profile)
    print(f"# Outlier detection: {options.hosts} SIMULATED hosts of {options.profile}, seed {options.seed}\n")
    print("| noise | fault | sick | named | recall | precision |\n| --- | --- | ---: | ---: | ---: | ---: |")
    clock = time.monotonic()
    for name, noise in NOISES.items():
        for words in FAULTS:
            for share in SHARES:
                fault = simulated.parse_fault(f"{words}:{share}%")
                recall, precision, named = score(healthy, options.hosts, fault, noise, options.seed)
                print(f"| {name} | {words} | {share} % | {named} | {recall:.4f} | {precision:.4f} |", flush=True)
    print(f"\n{time.monotonic() - clock:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
