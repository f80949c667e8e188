"""What a run may consist of, for ``gpucheck explain``: every step with its tags, its level and what it costs."""

from collections.abc import Iterable

from gpucheck.run.step import RunStep


def to_text(steps: Iterable[RunStep]) -> str:
    """Return one line for each step in the order in which they are run, in columns with a header.

    typical: on a healthy host. at most: then a step is abandoned, and the report names the place.
    """
    rows = [("step", "level", "typical", "at most", "tags")]
    rows += [(s.name, _level(s), f"{s.typical_s:g} s", f"{s.seconds:g} s", ", ".join(sorted(s.tags))) for s in steps]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:>{widths[3]}}  {row[4]}"
        for row in rows
    )


def _level(step: RunStep) -> str:
    return "quick" if "quick" in step.tags else "full" if "full" in step.tags else "standard"
