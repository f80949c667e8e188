"""Dumps of PyTorch's flight recorder as JSON, or as Python prints the unpickled ones; one for each rank.

Sources: torch/csrc/distributed/c10d/FlightRecorderDetail.hpp (versions 2.3 to 2.10 of the form).
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from gpucheck.imports._blocks import objects
from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import absent
from gpucheck.imports._regex import regex
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

NAME = "torch-flight-recorder"
MARKS = ('"pg_status"', '"collective_seq_id"', "'pg_status'", "'collective_seq_id'")
RANK = regex(r"(?i)\brank[ _:=]{0,3}(\d{1,6})\b|\btrace_(\d{1,6})\b|_rank_(\d{1,6})")
MOST_ENTRIES = 20_000
LONGEST_LITERAL = 4 << 20
# Lines between two dumps that belong to them: names of files, rules.
APART = 3


class _Group(NamedTuple):
    """The process group as one rank reports it: numbers of its last collectives. op: of the first that is not done."""

    enqueued: int
    completed: int
    op: str | None
    state: str | None


class _Dump(NamedTuple):
    """One rank's dump. name: ``rank 3``, or ``dump 2`` where no rank is named; line: where it begins."""

    name: str
    line: int
    groups: dict[str, _Group]
    ops: dict[tuple[str, int], str]


def parse(lines: list[str]) -> Part:
    """Who is behind. Raises ImportProblem where a dump cannot be read, and nothing else."""
    dumps: list[_Dump] = []
    for first, last in objects(lines, *MARKS):
        root = _decoded("\n".join(lines[first : last + 1]))
        if root is not None:
            dumps.append(_dump(root, _name(lines, first, len(dumps)), first + 1))
    if not dumps:
        raise absent(
            "dump of the flight recorder",
            "it is neither JSON nor a Python dictionary with pg_status or entries; the paste may be cut",
            "Give the complete dump of each rank as JSON",
        )
    return Part(messages=tuple(_messages(dumps)), looked_at=(f"the flight recorder of {counted(len(dumps), 'rank')}",))


def _decoded(text: str) -> dict[str, Any] | None:
    try:
        root = json.loads(text)
    except (ValueError, RecursionError):
        try:
            root = ast.literal_eval(text.strip()) if len(text) < LONGEST_LITERAL else None
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            return None
    return root if isinstance(root, dict) else None


def _name(lines: Sequence[str], first: int, before: int) -> str:
    for at in range(first - 1, max(-1, first - 1 - APART), -1):
        if match := RANK.search(lines[at][:500]):
            return f"rank {int(next(group for group in match.groups() if group))}"
        if lines[at].startswith(("}", "]")):
            break
    return f"dump {before + 1}"


def _dump(root: dict[str, Any], name: str, line: int) -> _Dump:
    rows = root.get("entries")
    entries = [row for row in rows[-MOST_ENTRIES:] if isinstance(row, dict)] if isinstance(rows, list) else []
    status = root.get("pg_status")
    groups: dict[str, _Group] = {}
    ops: dict[tuple[str, int], str] = {}
    waiting: dict[str, tuple[int, str, str]] = {}
    names = _groups_by_id(root, entries, name)
    for row in entries:
        number, op, state = _number(row.get("collective_seq_id")), row.get("profiling_name"), row.get("state")
        if number is None or row.get("is_p2p") is True or not isinstance(op, str):
            continue
        group = names(row.get("pg_id", 0))
        ops[group, number] = op[:80]
        if state in ("scheduled", "started") and (group not in waiting or number < waiting[group][0]):
            waiting[group] = (number, op[:80], str(state))
    if isinstance(status, dict):
        for key, value in list(status.items())[:1000]:
            if not isinstance(value, dict):
                continue
            enqueued, completed = (_number(value.get(f"last_{word}_collective")) for word in ("enqueued", "completed"))
            if enqueued is not None and completed is not None:
                group = names(key)
                op = waiting.get(group)
                groups[group] = _Group(enqueued, completed, op[1] if op else None, op[2] if op else None)
    return _Dump(name, line, groups, ops)


def _groups_by_id(root: dict[str, Any], entries: list[dict[str, Any]], dump: str) -> Callable[[Any], str]:
    """From a process group's number, which each rank counts for itself, to words that all its ranks share."""
    config = root.get("pg_config")
    names: dict[str, str] = {"0": "0"}
    for row in entries:
        pair = row.get("process_group")
        if isinstance(pair, list | tuple) and pair:
            names[str(row.get("pg_id"))] = str(pair[0])

    def named(number: Any) -> str:
        name = names.get(str(number)[:40])
        about = config.get(name) if isinstance(config, dict) and name is not None else None
        if not isinstance(about, dict):
            return f"{str(number)[:40]} of {dump}"
        return f"{str(about.get('desc') or name)[:60]} (ranks {str(about.get('ranks'))[:200].strip('[]')})"

    return named


def _number(value: Any) -> int | None:
    """Return a number, which some versions write as a string; -1 stands for none yet."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return int(value) if re.fullmatch(r"-?\d{1,15}", str(value)) else None


def _messages(dumps: list[_Dump]) -> Iterator[Message]:
    for group in sorted({group for dump in dumps for group in dump.groups}):
        seen = [(dump, dump.groups[group]) for dump in dumps if group in dump.groups]
        furthest = max(one.enqueued for _, one in seen)
        done = max(one.completed for _, one in seen)
        # Only a rank that the others wait for is behind: it did not enter the first collective that is not done.
        late = [(dump, one) for dump, one in seen if one.enqueued == done < furthest]
        for dump, one in late:
            text = (
                f"{dump.name} entered fewer collectives of process group {group} than the others: "
                f"{one.enqueued}, not {furthest}"
            )
            yield Message(key=f"{NAME}.behind", text=text, line=dump.line)
        for dump, one in seen:
            if one.completed < one.enqueued and not late and one.op is not None:
                text = (
                    f"{dump.name}: {one.op} ({one.state}) did not complete in process group {group}: "
                    f"{one.completed} of {one.enqueued} completed"
                )
                yield Message(key=f"{NAME}.incomplete", text=text, line=dump.line)
    yield from _differing(dumps)


def _differing(dumps: list[_Dump]) -> Iterator[Message]:
    """The first number in each process group under which the ranks called other collectives."""
    reported = set()
    for group, number in sorted({key for dump in dumps for key in dump.ops}):
        ops = {dump.name: dump.ops[group, number] for dump in dumps if (group, number) in dump.ops}
        if len(set(ops.values())) > 1 and group not in reported:
            reported.add(group)
            who = ", ".join(f"{name} {op}" for name, op in list(ops.items())[:8])
            text = f"collective {number} differs between ranks in process group {group}: {who}"
            yield Message(key=f"{NAME}.differs", text=text, line=dumps[0].line)


def blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """All dumps that follow each other together, with the lines above them that name the rank."""
    first = last = -1
    for begin, end in objects(lines, *MARKS):
        above = begin
        for at in range(begin - 1, max(last, begin - 1 - APART), -1):
            if RANK.search(lines[at][:500]):
                above = at
        if first >= 0 and sum(bool(line.strip()) for line in lines[last + 1 : begin]) > APART:
            yield first, last
            first = -1
        first, last = (above if first < 0 else first), end
    if first >= 0:
        yield first, last


KIND = Kind(
    name=NAME,
    title="a dump of PyTorch's flight recorder",
    parse=parse,
    hints=("pg_status", "collective_seq_id"),
    blocks=blocks,
)
