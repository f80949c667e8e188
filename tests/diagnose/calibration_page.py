"""The calibration measurement as a page of Markdown."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.diagnose.cases import FIRST_SIGHT, FIRST_SIGHT_DATE, LEARNED, MISSES, NAMES, Score, held_out, score
from tests.diagnose.generator.faults import FAULTS
from tests.diagnose.generator.known import LEVELS

if TYPE_CHECKING:
    from tests.diagnose.calibration import Calibration

SCOPE = """\
Scope: simulated machines, but for the last section. The machines, their faults and their numbers come from
`tests/diagnose/generator`, which shares no code and no constants with `gpucheck diagnose`. Half of the machines are
faulty, far more than in a real fleet. A fault counts even if the observations do not contain a number that could show
it. Stated probabilities were fitted to seeds 20000 to 23999 of the same generator.
"""

REAL = """\
Public machines whose outcome the thread or author concluded (`tests/data/perf`). Priors and spreads were chosen while
looking at the tuned ones. The expectation of the held-out ones was written from the source and committed before any
judge ran on them. The first row is what the judge then said: the blind result. Later the judge was changed for some of
them. They count apart since, so the last row is better than a blind one would be. A cause counts as said if it is in a
finding or an alternative; a false accusation is a WARN or FAIL for a cause that the source excludes.
"""


def real_machines() -> str:
    """The section on public machines, by what the judge was tuned on, and every machine that comes out wrong."""
    names: dict[str, list[str]] = {"tuned": [], "held out, then learned from": [], "held out": []}
    for name in NAMES:
        names[_group(name)].append(name)
    groups: list[tuple[str, Score]] = [(f"held out, at first sight ({FIRST_SIGHT_DATE})", FIRST_SIGHT)]
    groups += [(label, score(same)) for label, same in names.items()]
    rows = [
        (
            label,
            str(total.machines),
            str(total.unread),
            f"{total.said} of {total.wanted} ({100 * total.said / total.wanted:.1f} %)",
            _share(total.accused, total.machines),
            _share(total.verdicts, total.machines),
            _share(total.right, total.machines),
        )
        for label, total in groups
    ]
    head = (
        "Machines",
        "Read",
        "Not readable",
        "Expected causes said",
        "Falsely accused",
        "Verdict right",
        "All right",
    )
    wrong = [
        (f"`{name}`", _group(name), why)
        for name, why in sorted(MISSES.items(), key=lambda miss: (held_out(miss[0]), miss[0]))
    ]
    return "\n".join(["## Real machines", "", REAL, _table(head, rows), _table(("Wrong", "Of", "Why"), wrong)])


def _group(name: str) -> str:
    return "held out, then learned from" if name in LEARNED else "held out" if held_out(name) else "tuned"


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
