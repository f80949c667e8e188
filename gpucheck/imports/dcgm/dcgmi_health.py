"""dcgmi health --check: what DCGM's background health watches found."""

from gpucheck.imports._blocks import spans
from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import absent
from gpucheck.imports._regex import regex
from gpucheck.imports.dcgm._meaning import messages, unknown_meaning
from gpucheck.imports.dcgm._table import framed, rows
from gpucheck.model.paste import Message, Part

BEGIN = regex(r"^\s{0,8}\| (?:Health Monitor Report|Overall Health:?) {2,}")
INSIDE = regex(r"^\s{0,8}(?:\||\+[-=])")
STATE = regex(r"^(Healthy|Warning|Failure)\b")
ENTITY = regex(r"^(?:GPU(?: ID)?:? ?)?(\d{1,3})$")


def parse(lines: list[str]) -> Part:
    """Incidents as messages. Raises ImportProblem."""
    found: list[Message] = []
    overall: str | None = None
    gpu: str | None = None
    for row in rows(lines, by_words=True):
        state = STATE.match(row.text)
        if row.label.startswith("Overall Health"):
            overall = (state[1] if state else row.text.strip()) or None
        elif entity := ENTITY.match(row.label):
            gpu = entity[1]
        elif state and state[1] != "Healthy" and row.depth:
            reported = row.text[state.end() :].strip()
            shown = f"{row.label}: {state[1]}: {reported}"[:400]
            found += messages(reported, row.label, row.line, gpu) or [
                unknown_meaning(shown, failed=state[1] == "Failure", line=row.line, gpu=gpu)
            ]
    if overall is None and not found:
        raise absent(
            "report of dcgmi health",
            "no line states the overall health",
            "Give the complete table: dcgmi health -g 0 -c",
        )
    if overall in ("Warning", "Failure") and not found:
        found.append(unknown_meaning(f"Overall Health: {overall}", failed=overall == "Failure", line=1))
    return Part(messages=tuple(found), looked_at=("the health watches of DCGM",))


KIND = Kind(
    name="dcgmi-health",
    title="the output of dcgmi health",
    parse=parse,
    hints=("Health Monitor Report", "Overall Health"),
    blocks=lambda lines: framed(lines, spans(lines, BEGIN, INSIDE)),
)
