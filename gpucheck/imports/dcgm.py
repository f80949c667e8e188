"""What NVIDIA Data Center GPU Manager prints: dcgmi diag as a table (DCGM 2 to 4) and as JSON, health and nvlink."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from gpucheck.imports._kind import Kind
from gpucheck.imports._text import (
    in_order,
    json_object,
    objects,
    regex,
    rows_of,
    spans,
    string_of,
    with_lines_above,
)
from gpucheck.knowledge.messages import rows as known_rows
from gpucheck.model.diagnosis.observations import NvLinkCount, Observations, ObservedGpu
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

# Messages with a known meaning for the results of DCGM.
NAME = "dcgm"
LINK_DOWN = regex(r"GPU (\d{1,3})'s NvLink link (\d{1,2}) is currently down")
GPU = regex(r"\bGPUs?:? ?(\d{1,3})\b")
LONGEST = 20_000  # characters of a text that are kept
SHOWN = 300


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    return [(row.key, regex(one)) for row in known_rows(NAME) for one in row.patterns]


def messages(text: str, where: str, line: int, gpu: str | None = None) -> list[Message]:
    """What a text of DCGM means, once for every meaning and GPU. where: the test. gpu: the one that the text is of.

    Links that are down from the first on are distinguished from single ones: on a card without a bridge all are down.
    """
    text = " ".join(text[:LONGEST].split())
    found: dict[tuple[str, str | None], Message] = {}
    for key, pattern in _patterns():
        for match in pattern.finditer(text):
            named = match.groupdict().get("gpu") or gpu
            shown = text[match.start() :][: min(SHOWN, max(SHOWN // 2, match.end() - match.start()))]
            found.setdefault((key, named), Message(key=key, text=f"{where}: {shown}", line=line, gpu=named))
    for message in _links(text, where, line):
        found[message.key, message.gpu] = message
    return list(found.values())


def _links(text: str, where: str, line: int) -> Iterator[Message]:
    down: dict[str, set[int]] = {}
    for gpu, link in LINK_DOWN.findall(text):
        down.setdefault(gpu, set()).add(int(link))
    for gpu, links in down.items():
        slug = "links-down" if links == set(range(len(links))) else "link-down"
        listed = ", ".join(map(str, sorted(links)))
        yield Message(key=f"{NAME}.{slug}", text=f"{where}: GPU {gpu}: NvLink {listed} down", line=line, gpu=gpu)


def first_gpu(text: str) -> str | None:
    match = GPU.search(text[:80])
    return match[1] if match else None


def unknown_meaning(text: str, *, failed: bool, line: int, gpu: str | None = None) -> Message:
    return Message(key=f"{NAME}.{'failed' if failed else 'warned'}", text=text, line=line, gpu=gpu)


# Tables with two columns as dcgmi prints them, with the cells that it wrapped put together again.
ROW = regex(r"^\s{0,8}\|(?P<label>[^|]{1,40})\|(?P<text>[^|]{0,120})\|?\s*$")
RULE = regex(r"^\s{0,8}[|+](?:[-=]{3,}[+|]){1,3}[-=|+]{0,120}\s*$")
WRAPPED = 45  # characters of a cell that dcgmi diag fills before it goes on in the next line, without a blank
CELL = 48
ENTITY = regex(r"^(?:GPU|CPU|NvSwitch|Switch)s? ?\d{1,3}: ?(?:Pass|Fail|Warn|Skip|Not Run)", re.IGNORECASE)


class Row(NamedTuple):
    """A label and its text. line: where it begins. depth: of an arrow before the label (dcgmi health)."""

    label: str
    text: str
    line: int
    depth: int = 0


def rows(lines: Iterable[str], *, by_words: bool = False) -> Iterator[Row]:
    """Every row; a row without a label continues the previous one, unless it is a separate result.

    by_words: cells were wrapped between words (dcgmi health), not at a width (dcgmi diag).
    """
    now: Row | None = None
    full = False
    for number, line in enumerate(lines, start=1):
        match = ROW.match(line)
        if match is None:
            continue
        label, cell = match["label"], match["text"]
        text = cell.strip()
        if not label.strip() and now is not None and not ENTITY.match(text):
            if len(now.text) > LONGEST:
                continue
            is_wide = len(cell) == CELL and full and not by_words
            now = now._replace(text=now.text + cell[1:].rstrip() if is_wide else f"{now.text} {text}".strip())
            now = now._replace(text=now.text + " " if is_wide and _ends_blank(cell) else now.text)
            full = _is_full(cell)
            continue
        if now is not None:
            yield now
        name = label.replace("->", "").strip() or "result"
        depth = label.find("->") + 1
        now = Row(name, text + (" " if _ends_blank(cell) and _is_full(cell) else ""), number, depth)
        full = _is_full(cell)
    if now is not None:
        yield now


def _is_full(cell: str) -> bool:
    return len(cell) == CELL and len(cell[1:].rstrip()) >= WRAPPED - 1


def _ends_blank(cell: str) -> bool:
    """The last character that fits is a blank, which the text had."""
    return len(cell) == CELL and len(cell[1:].rstrip()) == WRAPPED - 1


def framed(lines: Sequence[str], found: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    return with_lines_above(lines, found, RULE.match)


# What begins another table directly below one of DCGM, whose own have at most two columns: those of nvidia-smi, and by
# their titles those of DCGM.
FOREIGN = (
    r"(?!\s{0,8}(?:\| ?(?:NVIDIA-SMI \d|Processes: )|\|(?:[^|]{0,120}\|){3}|\+(?:[-=]{1,120}\+){3}"
    r"|\|(?:=+\+){2}=+\|))"
)
TITLES = {
    "health": r"\s{0,8}\| (?:Health Monitor Report|Overall Health:?) {2,}",
    "nvlink": r"\s{0,8}\|\s{1,4}NvLink Link Status\s{1,4}\||\s{0,8}\| NVLINK Error Counts\b",
    "diag": r"\s{0,8}Successfully ran diagnostic for group|\s{0,8}\| Diagnostic {3,30}\| Result \|",
}


def _inside(own: str, *patterns: str) -> re.Pattern[str]:
    """A line of one of the patterns that does not begin a table of another kind."""
    others = "|".join(title for kind, title in TITLES.items() if kind != own)
    return regex(rf"^{FOREIGN}(?!{others})(?:{'|'.join(patterns)})")


# dcgmi diag as a table, of DCGM 2, 3 and 4.
DIAG_BEGIN = regex(
    rf"^(?:{TITLES['diag']})|"
    r"^\s{0,8}[|+]-{3,8} {1,4}(?:Deployment|Integration|Hardware|Stress|Metadata)\b"
)
AGAIN = regex(r"^\s{0,8}Successfully ran diagnostic for group")
DIAG_INSIDE = _inside("diag", r"\s{0,8}(?:\||\+[-=]|Error: unable to establish|Error: Unable to)")
RESULT = regex(r"^(?P<status>Pass|Fail|Warn|Skip|Not Run)\b(?: - (?P<who>.{1,120}))?$", re.IGNORECASE)
OF_GPU = regex(r"^GPU ?(?P<gpu>\d{1,3}): ?(?P<status>Pass|Fail|Warn|Skip|Not Run)", re.IGNORECASE)
TEXT = regex(r"^(?:Warning|Error|Info)\b")
HEADINGS = ("Diagnostic", "DCGM Version", "Driver Version Detected", "GPU Device IDs Detected", "Error Messages")


def diag_parse(lines: list[str]) -> Part | None:
    found: list[Message] = []
    passed: list[bool] = []
    for test, status, details in _diag_tests(rows(lines)):
        passed.append(status == "pass")
        texts = [row for row in details if TEXT.match(row.label) and not row.label.startswith("Info")]
        reported = [one for row in texts for one in messages(row.text, test.label, row.line, _named_gpu(row))]
        if status in ("fail", "warn", "pass"):
            found += reported or ([] if passed[-1] else [_failed(test, status, details, texts)])
    return _of_diag(found, passed)


def _of_diag(found: list[Message], passed: list[bool]) -> Part | None:
    about = f"{counted(len(passed), 'test')} of dcgmi diag, of which {sum(passed)} passed"
    return Part(messages=tuple(found), looked_at=(about,)) if passed else None


def _named_gpu(row: Row) -> str | None:
    return first_gpu(f"{row.label} {row.text}")


def _diag_tests(found: Iterator[Row]) -> Iterator[tuple[Row, str, list[Row]]]:
    test: Row | None = None
    status, details = "", list[Row]()
    for row in found:
        result = RESULT.match(row.text.strip())
        if result and row.label != "result" and not TEXT.match(row.label) and row.label not in HEADINGS:
            if test is not None:
                yield test, status, details
            test, status, details = row, result["status"].lower(), []
        elif test is not None and row.label not in HEADINGS:
            details.append(row)
    if test is not None:
        yield test, status, details


def _failed(test: Row, status: str, details: list[Row], texts: list[Row]) -> Message:
    gpus = [match["gpu"] for row in details if (match := OF_GPU.match(row.text)) and match["status"].lower() != "pass"]
    shown = f"{test.label}: {test.text}" + (f": {' '.join(texts[0].text.split())[:300]}" if texts else "")
    gpu = _named_gpu(texts[0]) if texts else gpus[0] if len(gpus) == 1 else first_gpu(test.text)
    return unknown_meaning(shown, failed=status == "fail", line=test.line, gpu=gpu)


DIAG = Kind(
    name="dcgmi-diag",
    title="the output of dcgmi diag",
    parse=diag_parse,
    hints=("ran diagnostic for group", "| Diagnostic", "-  Deployment  -", "-  Integration  -", "-  Hardware  -"),
    blocks=lambda lines: framed(lines, spans(lines, DIAG_BEGIN, DIAG_INSIDE, AGAIN)),
)


# dcgmi diag -j of DCGM 2 to 4: tests in categories, each with results of GPUs and what is wrong with them.
MARKS = ('"DCGM GPU Diagnostic"', '"DCGM Diagnostic"', '"test_categories"')
DEEPEST = 6


def diag_json_parse(lines: list[str]) -> Part | None:
    found: list[Message] = []
    passed: list[bool] = []
    for test in _diag_json_tests(json_object(lines, "dcgmi diag"), 0):
        name, results = string_of(test.get("name")) or "test", rows_of(test.get("results"))
        words = [string_of(result.get("status")).lower() for result in results]
        # DCGM 4: an error that is of no one GPU is in the summary alone, and each GPU passes.
        summary = test.get("test_summary")
        if isinstance(summary, dict) and not any(word.startswith(("fail", "warn")) for word in words):
            results, words = [*results, summary], [*words, string_of(summary.get("status")).lower()]
        passed.append(bool(words) and all(word.startswith("pass") for word in words))
        for result, status in zip(results, words, strict=True):
            found += _of_result(name, status, result)
    return _of_diag(found, passed)


def _diag_json_tests(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Every object with a name and results, wherever a release put them."""
    if isinstance(value, dict) and isinstance(value.get("results"), list) and "name" in value:
        yield value
    elif depth < DEEPEST:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for one in inner:
            yield from _diag_json_tests(one, depth + 1)


def _of_result(name: str, status: str, result: dict[str, Any]) -> list[Message]:
    gpu = _gpu(result)
    texts = list(_texts(result.get("warnings"))) + list(_texts(result.get("warning")))
    found = [one for text in texts for one in messages(text, name, 1, gpu)]
    if found or not status.startswith(("fail", "warn")):
        return found
    shown = f"{name}: {status}" + (f": {' '.join(texts)[:300]}" if texts else "")
    return [unknown_meaning(shown, failed=status.startswith("fail"), line=1, gpu=gpu)]


def _gpu(result: dict[str, Any]) -> str | None:
    value = result.get("gpu_id", result.get("gpu_ids"))
    if value is None and str(result.get("entity_group", "GPU")).upper() == "GPU":
        value = result.get("entity_id")
    return str(value) if isinstance(value, (int, str)) and str(value).isdigit() and len(str(value)) < 4 else None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield string_of(value.get("warning"))
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one) if not isinstance(one, list) else ()


DIAG_JSON = Kind(
    name="dcgmi-diag",
    title="the JSON of dcgmi diag",
    parse=diag_json_parse,
    hints=MARKS,
    blocks=lambda lines: objects(lines, *MARKS),
)


# dcgmi health --check: what DCGM's background health watches found.
HEALTH_BEGIN = regex(rf"^(?:{TITLES['health']})")
HEALTH_INSIDE = _inside("health", r"\s{0,8}(?:\||\+[-=])")
STATE = regex(r"^(Healthy|Warning|Failure)\b")
HEALTH_ENTITY = regex(r"^(?:GPU(?: ID)?:? ?)?(\d{1,3})$")


def health_parse(lines: list[str]) -> Part | None:
    found: list[Message] = []
    overall: str | None = None
    gpu: str | None = None
    for row in rows(lines, by_words=True):
        state = STATE.match(row.text)
        if row.label.startswith("Overall Health"):
            overall = (state[1] if state else row.text.strip()) or None
        elif entity := HEALTH_ENTITY.match(row.label):
            gpu = entity[1]
        elif state and state[1] != "Healthy" and row.depth:
            reported = row.text[state.end() :].strip()
            shown = f"{row.label}: {state[1]}: {reported}"[:400]
            found += messages(reported, row.label, row.line, gpu) or [
                unknown_meaning(shown, failed=state[1] == "Failure", line=row.line, gpu=gpu)
            ]
    if overall is None and not found:
        return None
    if overall in ("Warning", "Failure") and not found:
        found.append(unknown_meaning(f"Overall Health: {overall}", failed=overall == "Failure", line=1))
    return Part(messages=tuple(found), looked_at=("the health watches of DCGM",))


HEALTH = Kind(
    name="dcgmi-health",
    title="the output of dcgmi health",
    parse=health_parse,
    hints=("Health Monitor Report", "Overall Health"),
    blocks=lambda lines: framed(lines, spans(lines, HEALTH_BEGIN, HEALTH_INSIDE)),
)


# dcgmi nvlink: the state of every NVLink (-s) and the error counters of one GPU (-e).
NVLINK_BEGIN = regex(rf"^(?:{TITLES['nvlink']})|^\s{{0,8}}gpuId \d{{1,3}}: [UDX_] [UDX_] ")
NVLINK_INSIDE = _inside(
    "nvlink",
    r"\s{0,8}(?:\+[-=]|\||GPUs:|NvSwitches:|Key: Up=U)",
    r"\s{0,12}(?:gpuId|physicalId) \d",
    r"\s{2,16}[UDX_](?: [UDX_]){0,160}\s*$",
    r"\s{1,8}(?:No (?:GPUs|NvSwitches) found|Link Entities:)",
)
NVLINK_GPU = regex(r"^\s{0,12}gpuId (\d{1,3}):")
SWITCH = regex(r"^\s{0,12}(?:physicalId \d|NvSwitches:)")
STATES = regex(r"^\s{0,16}([UDX_](?: [UDX_]){0,160})\s*$")
GPU_ID = regex(r"\bGPU(?: ID)?:? (\d{1,3})\b")
COUNTED = ("CRC Data Error", "Replay Error", "Recovery Error")


def nvlink_parse(lines: list[str]) -> Part | None:
    links = _nvlink_links(lines)
    found = list(_errors(lines))
    has_counters = any("NVLINK Error Counts" in line for line in lines)
    if not links and not has_counters:
        return None
    gpus = tuple(ObservedGpu(nvlinks=one) for one in in_order(links))
    looked_at = []
    if links:
        looked_at.append(f"NVLinks of {counted(len(links), 'GPU')}")
    if has_counters:
        looked_at.append("NVLink error counters of DCGM")
    return Part(facts=Facts(observed=Observations(gpus=gpus)), messages=tuple(found), looked_at=tuple(looked_at))


def _nvlink_links(lines: list[str]) -> dict[int, NvLinkCount]:
    """By DCGM's number of the GPU. A link that is not supported does not exist; a disabled one does."""
    found: dict[int, NvLinkCount] = {}
    now: int | None = None
    for line in lines:
        if match := NVLINK_GPU.match(line):
            now, line = int(match[1]), line[match.end() :].partition("\u2190")[0]
            if not line.strip():
                continue
        if SWITCH.match(line):
            now = None
        elif now is not None and (states := STATES.match(line)):
            cells = states[1].split()
            total = len(cells) - cells.count("_")
            found[now] = NvLinkCount(active=cells.count("U"), total=total) if total else NvLinkCount()
            now = None
    return found


def _errors(lines: list[str]) -> Iterator[Message]:
    named = [match[1] for line in lines if "Error" not in line and (match := GPU_ID.search(line))]
    link = ""
    for row in rows(lines):
        if row.label.startswith("Link "):
            link = row.label
        elif row.label in COUNTED and row.text.strip().isdigit() and int(row.text[:18]) > 0:
            shown = f"{link}: {row.label}: {row.text.strip()}"
            yield Message(key=f"{NAME}.link-errors", text=shown, line=row.line, gpu=named[-1] if named else None)


NVLINK = Kind(
    name="dcgmi-nvlink",
    title="the output of dcgmi nvlink",
    parse=nvlink_parse,
    hints=("NvLink Link Status", "NVLINK Error Counts", "gpuId "),
    blocks=lambda lines: framed(lines, spans(lines, NVLINK_BEGIN, NVLINK_INSIDE)),
)
