"""What gpucheck compute finds on simulated machines, and in what time.

    python -m tests.compute.detection > bench/results/compute-detection-YYYY-MM-DD.md

Every run has noise of its own, by its seed. A fault counts as found if its GPU has a finding, and as right if the only
finding is of that GPU and has that cause.
"""

import math
import time
from collections.abc import Iterator

from gpucheck.checks.compute.results import miss_probability
from gpucheck.compute.running.run import ComputeRun
from tests.compute.machines import burnt, computed, computed_on, loud, simulated

MACHINES = ("p100-pcie-x2", "a100-sxm-x4", "dgx1-v100", "hgx-h100-x8", "l40s-x4", "rtx4090-x8")
POWER_LIMIT = "power-limit:gpu=1,watts=70 %"
FAULTS = {
    "gemm-slow:gpu=1": ("compute-matrix", "slow-compute"),
    "memory-slow:gpu=1": ("compute-memory", "slow-memory"),
    "sdc:gpu=1": ("compute-results", "silent-corruption"),
    "hot:gpu=1": ("compute-clocks", "throttled"),
    "hot:gpu=1,by=fan": ("compute-clocks", "throttled"),
    "throttle-power-brake:gpu=1": ("compute-clocks", "throttled"),
    POWER_LIMIT: ("compute-clocks", "power-limit-lowered"),
}
HEALTHY = {"p100-pcie-x2": 1000, "a100-sxm-x4": 1000, "hgx-h100-x8": 1000}
SEEDS, RUNS, TEN_MINUTES = 20, 400, 600.0
THEORY = (0.2, 0.5, 0.9)


def fault_on(machine: str, fault: str) -> str:
    """Return the fault, with watts that fit the model if it is a part of the power limit."""
    return fault.replace("70 %", f"{simulated(machine)[1].power_default_w * 0.7:.0f}")


def outcome(machine: str, fault: str, seeds: int) -> tuple[int, int, int]:
    """Return how often the fault was found, was the only finding with its GPU and cause, and another GPU was named."""
    gpus = simulated(machine, fault_on(machine, fault))
    guilty = f"gpu:{gpus[1].bus_id}"
    found = right = others = 0
    for seed in range(seeds):
        named = {(check, subject, cause) for check, subject, cause, _ in loud(computed_on(gpus, seed)[1])}
        found += any(subject == guilty for _, subject, _ in named)
        right += named == {(FAULTS[fault][0], guilty, FAULTS[fault][1])}
        others += any(subject != guilty for _, subject, _ in named)
    return found, right, others


def alarms(machine: str, seeds: int) -> int:
    """Return the number of healthy runs with a finding."""
    gpus = simulated(machine)
    return sum(bool(loud(computed_on(gpus, seed)[1])) for seed in range(seeds))


def corruption(expected: float, runs: int = RUNS) -> tuple[float, float]:
    """Return the probability that the formula gives for a rate of wrong values, and the part of runs that found it."""
    ran, _ = computed("p100-pcie-x2")
    values = sum(repeats.values for repeats in ran.devices[1].repeats.values())
    rate = -math.log(1 - expected) / values
    gpus = simulated("p100-pcie-x2", f"sdc:gpu=1,rate={rate}")
    found = sum(bool(loud(computed_on(gpus, seed)[1])) for seed in range(runs))
    return 1 - miss_probability(values, rate), found / runs


def times(machine: str) -> tuple[int, float, float, float]:
    """Return GPUs, seconds of simulated load, and seconds of processor time of a standard run and of a burn-in."""
    gpus = simulated(machine)
    began = time.process_time()
    ran: ComputeRun = computed_on(gpus)[0]
    standard = time.process_time() - began
    began = time.process_time()
    burnt(gpus, TEN_MINUTES)
    return len(gpus), ran.seconds, standard, time.process_time() - began


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Findings of gpucheck compute on SIMULATED machines"
    yield f"\nFaults, {SEEDS} seeds each: found; right GPU and cause, and nothing else; runs that named another GPU.\n"
    yield "| fault | " + " | ".join(MACHINES) + " |\n| --- |" + " --- |" * len(MACHINES)
    for fault in FAULTS:
        cells = (outcome(machine, fault, SEEDS) for machine in MACHINES)
        yield f"| `{fault}` | " + " | ".join(f"{found}; {right}; {others}" for found, right, others in cells) + " |"
    yield "\n| healthy machine | runs | runs with a finding |\n| --- | ---: | ---: |"
    for machine, seeds in HEALTHY.items():
        yield f"| {machine} | {seeds} | {alarms(machine, seeds)} |"
    yield f"\nSilent corruption at a rate that a run finds with a known probability, {RUNS} runs each.\n"
    yield "| by the formula | found |\n| ---: | ---: |"
    for expected in THEORY:
        yield "| {:.1%} | {:.1%} |".format(*corruption(expected))
    yield "\n| machine | GPUs | standard, load | standard, processor time | burn-in of 10 min, processor time |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for machine in ("p100-pcie-x2", "hgx-h100-x8"):
        count, load, standard, burn_in = times(machine)
        yield f"| {machine} | {count} | {load:.0f} s | {standard:.2f} s | {burn_in:.2f} s |"


if __name__ == "__main__":
    for line in page():
        print(line, flush=True)
