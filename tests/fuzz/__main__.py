"""``python -m tests.fuzz``: fuzz, or run one input again."""

import argparse
import random
import signal
import sys
import time
from pathlib import Path

from tests.fuzz import results, runner
from tests.fuzz.cases import made
from tests.fuzz.outcome import outcome
from tests.fuzz.target import Target, chosen
from tests.fuzz.worker import Plan


def main() -> int:
    """Exit status 0: nothing failed, 1: something did, 64: wrong usage."""
    options = _options()
    try:
        targets = chosen(options.target)
    except LookupError as error:
        print(f"Error: {error.args[0]}.", file=sys.stderr)
        return 64
    if options.list:
        print("\n".join(target.name for target in targets))
        return 0
    if options.case is not None or options.file is not None:
        if len(targets) != 1:
            print("Error: --case and FILE are for one target. Name it with --target.", file=sys.stderr)
            return 64
        data = options.file.read_bytes() if options.file else made(targets[0], options.seed, options.case)
        return _one(targets[0], data, options.output)
    return _fuzz(targets, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.fuzz", description="Fuzz everything that reads foreign input.")
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="Run this one input. Requires --target.")
    parser.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="NAME",
        help="One target, or the start of several. Repeatable.",
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="How long to go on. Default: 60.")
    parser.add_argument("--cases", type=int, help="Run so many inputs of each target instead.")
    parser.add_argument("--seed", type=int, help="Makes the same inputs again. Default: another one each time.")
    parser.add_argument("--case", type=int, help="Make and run this one input.")
    parser.add_argument("--jobs", type=int, default=1, help="Processes. Default: 1.")
    parser.add_argument(
        "-o", "--output", type=Path, help="Directory for failing inputs; with --case the file of the input."
    )
    parser.add_argument("--list", action="store_true", help="Print the targets.")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = 0 if options.case is not None else random.SystemRandom().randrange(1_000_000)
    return options


def _one(target: Target, data: bytes, output: Path | None) -> int:
    from tests.fuzz import product

    if output is not None:
        output.write_bytes(data)
    product.prepare()
    started = time.process_time()
    try:
        failure = outcome(target, data)
    finally:
        product.remove_scratch()
    print(f"{target.name}: {len(data)} bytes, {time.process_time() - started:.3f} s: {failure or 'no failure'}")
    return int(failure is not None)


def _fuzz(targets: tuple[Target, ...], options: argparse.Namespace) -> int:
    output = (options.output or runner.folder()).absolute()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # workers and their files go with it
    print(f"fuzz: seed {options.seed}, {len(targets)} targets; failing inputs go to {output}", file=sys.stderr)
    plan = Plan(targets, options.seed, options.seconds, options.cases, options.jobs, output)
    result = runner.run(plan)
    print(results.table(result))
    for found in sorted(result.found):
        path = results.saved(found, options.seed, output)
        print(f"\n{results.described(found)}\n  input: {path}\n  again: {results.again(found, options.seed)}")
    return int(bool(result.found))


if __name__ == "__main__":
    sys.exit(main())
