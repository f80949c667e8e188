"""The calibration measurement as a page of Markdown."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.diagnose.generator.faults import FAULTS
from tests.diagnose.generator.known import LEVELS

if TYPE_CHECKING:
    from tests.diagnose.calibration import Calibration

SCOPE = """\
Scope: simulated machines only. The machines, their faults and their numbers come from `tests/diagnose/generator`,
which shares no code and no constants with `gpucheck diagnose`. Half of the machines are faulty, far more than in a real
fleet. A fault counts even if the observations do not contain a number that could show it.
"""


def markdown(result: "Calibration", first: int, count: int) -> str:
    """Return the page: probabilities by bin, causes, faults found, false alarms."""
    faulty, healthy = sum(result.faults[level] for level in LEVELS), result.healthy.total()
    top, named = (sum(found[level] for level in LEVELS) for found in (result.top, result.named))
    stated = sum(tally.count for tally in result.bins)
    summary = [
        ("Machines", f"{result.machines} (seeds {first} to {first + count - 1}): {faulty} faulty, {healthy} healthy"),
        ("Statements with a probability", f"{stated} ({result.without_probability} causes without one)"),
        ("Expected calibration error", f"{result.expected_error:.3f}" if stated else "unknown: no probabilities"),
        ("Faulty machines with the true cause on top", _share(top, faulty)),
        ("Faulty machines with the true cause named at all", _share(named, faulty)),
        ("Healthy machines with WARN or FAIL", _share(result.false_alarms.total(), healthy)),
        (
            "Healthy machines with WARN or FAIL for a cause that is not true",
            _share(result.wrong_alarms.total(), healthy),
        ),
        ("Machines with an impossible cause at 50 % or more", _share(result.tempted, result.machines)),
        ("Time per machine", f"{1000 * result.seconds / max(1, result.machines):.1f} ms"),
    ]
    bins = [
        (f"{at / 10:.1f} to {(at + 1) / 10:.1f}", str(tally.count), *_pair(tally.count, tally.mean, tally.share))
        for at, tally in enumerate(result.bins)
    ]
    causes = [
        (f"`{cause}`", str(tally.count), *_pair(tally.count, tally.mean, tally.share))
        for cause, tally in sorted(result.causes.items())
    ]
    found = [
        (
            f"`{key}`" if key in FAULTS else f"all, {key} observations",
            str(result.faults[key]),
            _share(result.top[key], result.faults[key]),
            _share(result.named[key], result.faults[key]),
        )
        for key in (*LEVELS, *sorted(FAULTS))
    ]
    alarms = [
        (
            level,
            str(total := result.healthy[level]),
            _share(result.false_alarms[level], total),
            _share(result.wrong_alarms[level], total),
        )
        for level in LEVELS
    ]
    wrong = [(f"`{cause}`" if cause != "no cause" else cause, str(n)) for cause, n in result.alarm_causes.most_common()]
    return "\n".join(
        [
            "# Calibration of link diagnosis",
            "",
            SCOPE,
            _table(("Quantity", "Value"), summary),
            "## Probabilities",
            "",
            _table(("Stated probability", "Statements", "Mean probability", "Right"), bins),
            "## Probabilities by cause",
            "",
            _table(("Cause", "Statements", "Mean probability", "Right"), causes),
            "## Faults found",
            "",
            _table(("True cause", "Machines", "On top", "Named"), found),
            "## False alarms",
            "",
            _table(("Observations", "Healthy machines", "With WARN or FAIL", "For a cause that is not true"), alarms),
            _table(("Cause that is not true", "Healthy machines"), wrong),
        ]
    )


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.1f} %)" if whole else "none"


def _pair(count: int, mean: float, share: float) -> tuple[str, str]:
    return (f"{mean:.3f}", f"{share:.3f}") if count else ("", "")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
