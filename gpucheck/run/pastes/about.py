"""Findings about pasted text itself: what is damaged, contradicts something else, or covers some of the GPUs only."""

from collections.abc import Iterator, Sequence

from gpucheck.model import Finding
from gpucheck.model.diagnosis.paste import Part, UnreadRange
from gpucheck.model.finding.about import About
from gpucheck.printable import counted

ABOUT = About(check="paste")
MOST_DAMAGED, MOST_LINES = 8, 8
AGAIN = "Paste the complete output of the tool again"
ONE_RUN = "Give output of one run on all GPUs, without CUDA_VISIBLE_DEVICES"


def place(part: Part) -> str:
    """Return where a part stands: ``issue.txt lines 3-9 (nvbandwidth)``."""
    if not part.ranges:
        return "a part without lines"
    one = part.ranges[0]
    return f"{one.source} lines {one.first_line}-{part.ranges[-1].last_line} ({one.kind})"


def damaged(unread: Sequence[UnreadRange]) -> Iterator[Finding]:
    """Output of a known tool that could not be read, or not all of it. What it holds may be a fault."""
    rows = [row for row in unread if row.why]
    for row in rows[:MOST_DAMAGED]:
        yield ABOUT.with_evidence(row.text).unknown(row.why, AGAIN, f"{_lines(row)}: damaged or incomplete")
    if more := rows[MOST_DAMAGED:]:
        about = ABOUT.with_evidence(*(f"{_lines(row)}: {row.why}" for row in more[:MOST_LINES]))
        yield about.unknown(
            "output of known tools is damaged there",
            AGAIN,
            f"{counted(len(more), 'more place')}: damaged or incomplete",
        )


def _lines(row: UnreadRange) -> str:
    span = f"{row.first_line}-{row.last_line}" if row.last_line > row.first_line else f"{row.first_line}"
    return f"{row.source} line{'s' if row.last_line > row.first_line else ''} {span}"


def contradiction(one: str, other: str, differing: Sequence[str]) -> Finding:
    """Two parts of one machine that cannot both be true of one time. Each was evaluated."""
    about = ABOUT.with_evidence(*differing[:MOST_LINES])
    return about.unknown(
        f"{counted(len(differing), 'value')} differ: the two are of different times, settings or hosts",
        "Give the output that is of the present state alone",
        f"{one} contradicts {other}; each was evaluated",
    )


def other_machine(one: str, other: str, why: str) -> Finding:
    """A part that cannot be of the machine of the others, and was evaluated by itself."""
    return ABOUT.unknown(why, f"Give the output of each host alone. If both are of one host: {ONE_RUN}",
                         f"{one} does not fit {other}; evaluated separately")  # fmt: skip


def no_host(parts: Sequence[Part]) -> Finding:
    """Parts that name no host, in a text that names several."""
    return ABOUT.with_evidence(*map(place, parts[:MOST_LINES])).unknown(
        "the input names several hosts, and these lines name none",
        "Give the output of each host in a file of its own, or name the host: --machine NAME",
        f"{place(parts[0])}: host not known; evaluated separately",
    )


def some_gpus(part: Part, count: int, most: int) -> Finding:
    """A run that used fewer GPUs than the machine has. count: of the run, or of the machine if a list has `most`."""
    return ABOUT.unknown(
        f"nothing in it covers the other {counted(most - count, 'GPU')}",
        ONE_RUN,
        f"{place(part)}: {count} of {most} GPUs",
    )


def too_many(parts: Sequence[Part]) -> Finding:
    """What was left when the limit of machines in one text was reached."""
    return ABOUT.with_evidence(*map(place, parts[:MOST_LINES])).unknown(
        "the input has parts of too many different machines", "Give the output of each host in a file of its own",
        f"{counted(len(parts), 'part')} not evaluated",
    )  # fmt: skip
