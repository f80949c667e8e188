"""Reports of frameworks: collect_env and check_env, and PyTorch's flight recorder."""

import ast
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from gpucheck.imports._kind import Kind, messages_in
from gpucheck.imports._text import objects, regex, spans
from gpucheck.imports.nccl.tests import leftovers
from gpucheck.imports.nvidia_smi._fields import named, part
from gpucheck.model.diagnosis.observations import Observations, ObservedHost
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

# Reports that machine learning frameworks print of the machine they run on.


# What collect_env of PyTorch and vLLM and check_env of SGLang print for an issue: versions, the driver, GPU names.
#
# The topology matrix in it is read as nvidia-smi topo -m.
REPORT_NAME = "environment-report"
MOST_GPUS = 128
# Images state their content, clusters their network; neither changes the paths in one host.
NO_SWITCH = {"NCCL_VERSION", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_IB_HCA"}
# Each of these lines identifies such a report.
BEGIN = regex(
    r"^\s{0,8}(?:PyTorch version: \d|Collecting environment information|CUDA used to build PyTorch: "
    r"|Is (?:CUDA|XNNPACK|debug build) ?(?:available)?: (?:True|False)|CUDA available: (?:True|False)"
    r"|(?:GPU models and configuration|Nvidia driver version|cuDNN version): ?"
    r"|Versions of relevant libraries:|vLLM (?:Version|Build Flags|Info)|\[(?:pip3?|conda)\] [\w.-]{1,80}"
    r"|CUDA Archs: |CUDA_MODULE_LOADING set to: "
    r"|ROCM Version\s{0,4}: |={8,80} ?(?:System|PyTorch|Python|CUDA / GPU|vLLM|CPU) (?:Info|Environment))"
)
# Lines between them, which mean little elsewhere.
KEYS = (
    "ROCM used to build PyTorch|OS|GCC version|Clang version|CMake version|Libc version|Python version|"
    "Python platform|CUDA runtime version|HIP runtime version|MIOpen runtime version|Neuron SDK Version|"
    "Python|CUDA_HOME|NVCC|PyTorch|sgl_kernel|sglang|flashinfer|flashinfer_python|triton|transformers|torchao|numpy|"
    "aiohttp|fastapi|hf_transfer|huggingface_hub|interegular|modelscope|orjson|outlines|packaging|psutil|pydantic|"
    "python-multipart|multipart|pyzmq|zmq|uvicorn|uvloop|vllm|xgrammar|openai|tiktoken|anthropic|litellm|decord|"
    "CUDA Driver Version|GPU Topology|NVIDIA Topology|CPU|Hypervisor vendor|ulimit soft"
)
LSCPU = (
    r"Architecture|CPU op-mode\(s\)|Address sizes|Byte Order|CPU\(s\)|On-line CPU\(s\) list|Vendor ID|Model name|"
    r"CPU family|Model|Thread\(s\) per core|Core\(s\) per socket|Socket\(s\)|Stepping|Frequency boost|"
    r"CPU(?:\(s\) scaling)? (?:max |min )?MHz|BogoMIPS|Flags|Virtualization(?: type)?|L1[di] cache|L[23] cache|"
    r"NUMA node(?:\(s\)|\d{1,3} CPU\(s\))|Vulnerability [\w ]{3,40}"
)
GPU_LINE = regex(
    r"^\s{0,8}(?:GPU models and configuration:\s{1,4})?GPU (\d{1,3}(?:,\d{1,3}){0,127}): ([^\n(:]{2,80}?)"
    r"(?: \(UUID: [^)]{1,60}\))?\s*$"
)
MIG = regex(r"^\s{1,12}MIG \S{1,30}\s+Device\s+\d{1,3}:")
VARIABLE = regex(r"^([A-Z][A-Z0-9_]{3,40})=(\S.{0,400})$")
INSIDE = regex(
    rf"^\s{{0,8}}(?:(?:{KEYS}):(?: |$)|(?:{LSCPU}):\s|GPU \d{{1,3}}(?:,\d{{1,3}}){{0,127}}(?: Compute Capability)?: \S"
    rf"|/\S{{1,200}}/libcudnn\S{{0,80}}\s*$|{VARIABLE.pattern[1:]}|(?:={{8,}}|-{{8,}})\s*$)|{MIG.pattern}"
)
DRIVER = regex(r"^\s{0,8}(?:Nvidia driver version|CUDA Driver Version)\s{0,4}: (\d{3}\.\d{1,3}(?:\.\d{1,3})?)\s*$")


def report_parse(lines: list[str]) -> Part | None:
    if not any(BEGIN.match(line) for line in lines):
        return None
    names: dict[int, str] = {}
    driver = None
    for line in lines:
        if match := GPU_LINE.match(line):
            for index in map(int, match[1].split(",")):
                if index < MOST_GPUS:
                    names.setdefault(index, match[2].strip())
        elif match := DRIVER.match(line):
            driver = driver or match[1]
    gpus = [named(at, names[at]) for at in sorted(names)]
    messages = messages_in(REPORT_NAME, lines)
    pairs = [(match[1], match[2]) for line in lines if (match := VARIABLE.match(line))]
    environment = leftovers([pair for pair in pairs if pair[0].startswith("NCCL_") and pair[0] not in NO_SWITCH])
    if not gpus:
        seen = Observations(host=ObservedHost(driver=driver), environment=environment)
        return Part(facts=Facts(observed=seen), messages=messages, looked_at=("versions in an environment report",))
    return part(gpus, driver=driver, messages=messages, environment=environment)


REPORT = Kind(
    REPORT_NAME,
    "the output of collect_env (PyTorch, vLLM) or check_env (SGLang)",
    report_parse,
    loose=True,
    hints=("PyTorch", "CUDA available", "relevant libraries", "[pip", "[conda]", "vLLM ", "driver version: "),
    blocks=lambda lines: spans(lines, BEGIN, INSIDE),
)


# Dumps of PyTorch's flight recorder as JSON, or as Python prints the unpickled ones; one for each rank.
#
# Sources: torch/csrc/distributed/c10d/FlightRecorderDetail.hpp (versions 2.3 to 2.10 of the form).
RECORDER_NAME = "torch-flight-recorder"
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


def recorder_parse(lines: list[str]) -> Part | None:
    dumps: list[_Dump] = []
    for first, last in objects(lines, *MARKS):
        root = _decoded("\n".join(lines[first : last + 1]))
        if root is not None:
            dumps.append(_dump(root, _name(lines, first, len(dumps)), first + 1))
    if not dumps:
        return None
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
            yield Message(key=f"{RECORDER_NAME}.behind", text=text, line=dump.line)
        for dump, one in seen:
            if one.completed < one.enqueued and not late and one.op is not None:
                text = (
                    f"{dump.name}: {one.op} ({one.state}) did not complete in process group {group}: "
                    f"{one.completed} of {one.enqueued} completed"
                )
                yield Message(key=f"{RECORDER_NAME}.incomplete", text=text, line=dump.line)
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
            yield Message(key=f"{RECORDER_NAME}.differs", text=text, line=dumps[0].line)


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


RECORDER = Kind(
    name=RECORDER_NAME,
    title="a dump of PyTorch's flight recorder",
    parse=recorder_parse,
    hints=("pg_status", "collective_seq_id"),
    blocks=blocks,
)
