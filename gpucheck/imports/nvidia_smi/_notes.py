"""Facts of ``nvidia-smi -q`` that no check of a live host asks for, as messages: rows of knowledge/messages."""

from collections.abc import Iterator, Sequence

from gpucheck.imports.nvidia_smi import _values as v
from gpucheck.imports.nvidia_smi._facts import Facts
from gpucheck.model.diagnosis.paste import Message

KEY = "nvidia-smi-q"
NO_ANSWER = ("GPU is lost", "Unknown Error", "ERR!", "GPU requires reset")
MANY = 8  # values that are not available; one alone is usual: laptops do not report their power limit
FABRIC = {"In Progress": "fabric-in-progress"}
REPAIRS = {
    "sram_threshold_exceeded": "sram-threshold",
    "unrepairable_memory": "unrepairable-memory",
    "channel_repair_pending": "repair-pending",
    "tpc_repair_pending": "repair-pending",
}


def notes(facts: Facts, bus_id: str | None, lines: Sequence[str]) -> Iterator[Message]:
    """Return what the text itself reports as wrong. lines: of the text, for the line number of the report."""
    if unanswered(facts):
        bad = [value for path, value in facts.found.items() if len(path) == 1 and value in NO_ANSWER]
        yield _message("no-answer", f"{bad[0]} in {len(bad)} values", bus_id, lines, bad[0])
        return
    state = facts.get("fabric/state")
    if state in FABRIC:
        yield _message(FABRIC[state], f"Fabric State: {state}", bus_id, lines, state)
    for name, key in REPAIRS.items():
        if v.switch(facts.get(name)):
            words = name.replace("_", " ").title().replace("Sram", "SRAM").replace("Tpc", "TPC")
            yield _message(key, f"{words}: Yes", bus_id, lines, words)


def unanswered(facts: Facts) -> bool:
    """A GPU that gave no answers: its name is missing, or most values are."""
    bad = sum(value in NO_ANSWER for path, value in facts.found.items() if len(path) == 1)
    return bad >= MANY or (bad > 1 and facts.get("product_name") in NO_ANSWER)


def _message(key: str, text: str, bus_id: str | None, lines: Sequence[str], says: str) -> Message:
    line = next((at for at, one in enumerate(lines, start=1) if says in one), 1)
    return Message(key=f"{KEY}.{key}", text=text, line=line, gpu=bus_id)
