"""``python -m tests.fuzz``: new inputs for every target until the time is over."""

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, given, seed, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.fuzz.strategies import inputs
from tests.fuzz.target import Target, all_targets, bounded_memory, run

EXAMPLES = 200
"""Inputs of a target before the next one has its turn."""


def main() -> int:
    """Exit status 0: nothing failed, 1: something did, 64: wrong usage."""
    parser = argparse.ArgumentParser("python -m tests.fuzz", description="Fuzz everything that reads foreign input.")
    parser.add_argument("--target", default="", metavar="NAME", help="One target, or the start of several.")
    parser.add_argument("--seconds", type=float, default=60.0, help="How long to go on. Default: 60.")
    parser.add_argument("--seed", type=int, help="Makes the same inputs again. Default: another one each time.")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/fuzz"), help="Directory for failing inputs.")
    options = parser.parse_args()
    targets = [one for one in all_targets() if one.name.startswith(options.target)]
    if not targets:
        print(f"Error: no target is called {options.target}.", file=sys.stderr)
        return 64
    first = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    output = options.output.absolute()
    print(f"fuzz: seed {first}, {len(targets)} targets; failing inputs go to {output}", file=sys.stderr)
    ends, turn = time.monotonic() + options.seconds, first
    failed: set[str] = set()
    ran: Counter[str] = Counter()
    with bounded_memory():
        while time.monotonic() < ends and len(failed) < len(targets):
            for one in targets:
                if one.name not in failed and time.monotonic() < ends and not survives(one, turn, output, ran):
                    failed.add(one.name)
            turn += 1
    for name, count in ran.items():
        print(f"fuzz: {count:9,} inputs  {name}")
    print(f"fuzz: {ran.total():,} inputs, {len(failed)} of {len(targets)} targets failed")
    return int(bool(failed))


def survives(one: Target, number: int, output: Path, ran: Counter[str]) -> bool:
    """Run and count inputs of a target. A failing one is made small, printed and kept: the next run begins with it."""
    failing = b""

    def check(data: bytes) -> None:
        nonlocal failing
        ran[one.name] += 1
        try:
            run(one, data)
        except Exception:
            failing = data
            raise

    check.__name__ = one.name.replace("-", "_")  # the database keeps the examples of each name
    database = DirectoryBasedExampleDatabase(output / "examples")
    limits = settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=False,
        database=database,
        suppress_health_check=list(HealthCheck),
    )
    try:
        seed(number)(limits(given(inputs(one))(check)))()
    except Exception:
        traceback.print_exc()
        path = output / f"{one.name}.input"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(failing)
        print(f"{one.name}: {path}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
