"""Messages with a known meaning for the results of DCGM."""

import re
from collections.abc import Iterator

from gpucheck.imports._regex import regex
from gpucheck.knowledge.messages import rows as known_rows
from gpucheck.model.paste import Message

NAME = "dcgm"
LINK_DOWN = regex(r"GPU (\d{1,3})'s NvLink link (\d{1,2}) is currently down")
GPU = regex(r"\bGPUs?:? ?(\d{1,3})\b")
LONGEST = 20_000
SHOWN = 300
_compiled: list[tuple[str, re.Pattern[str]]] = []


def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    if not _compiled:
        _compiled.extend((row.key, regex(one)) for row in known_rows(NAME) for one in row.patterns)
    return _compiled


def messages(text: str, where: str, line: int, gpu: str | None = None) -> list[Message]:
    """What a text of DCGM means, once for every meaning and GPU. where: the test. gpu: the one that the text is of.

    Links that are down from the first on are distinguished from single ones: on a card without a bridge all are down.
    """
    text = " ".join(text[:LONGEST].split())
    found: dict[tuple[str, str | None], Message] = {}
    for key, pattern in _patterns():
        for match in pattern.finditer(text):
            named = match.groupdict().get("gpu") or gpu
            shown = _sentence(text, match)
            found.setdefault((key, named), Message(key=key, text=f"{where}: {shown}", line=line, gpu=named))
    for message in _links(text, where, line):
        found[message.key, message.gpu] = message
    return list(found.values())


def _sentence(text: str, match: re.Match[str]) -> str:
    """The match with some words after it."""
    return text[match.start() : match.start() + max(SHOWN // 2, match.end() - match.start())][:SHOWN]


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
    """Return the message of a result without a known meaning, a failure or a warning."""
    return Message(key=f"{NAME}.{'failed' if failed else 'warned'}", text=text, line=line, gpu=gpu)
