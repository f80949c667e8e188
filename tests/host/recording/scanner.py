"""A public secret scanner as an outside judge, and texts that its rules find: random ones of their own patterns."""

import math
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.shared import from_yaml

try:
    from re import _parser as sre  # type: ignore[attr-defined,unused-ignore]
except ImportError:  # Python 3.10
    import sre_parse as sre  # type: ignore[no-redef,unused-ignore]

DATA = Path(__file__).parents[2] / "data/secret_scanner.yml"
PRINTABLE = "".join(map(chr, range(33, 127)))
SETS = {"CATEGORY_WORD": "abcXYZ0123456789_", "CATEGORY_DIGIT": "0123456789", "CATEGORY_SPACE": " "}
LONGER = 12  # than the least, for repetitions


class Rule(NamedTuple):
    """id, words of which a match holds one, pattern, and the least entropy of the secret in bits a character."""

    id: str
    keywords: tuple[str, ...]
    pattern: re.Pattern[str]
    entropy: float

    def fires(self, text: str) -> bool:
        """Whether the scanner reports this text."""
        if self.keywords and not any(word in text.lower() for word in self.keywords):
            return False
        return any(_entropy(_secret(found)) >= self.entropy for found in self.pattern.finditer(text))

    def examples(self, number: int) -> Iterator[str]:
        """Texts that it reports, the same ones in every run."""
        chance = random.Random(self.id)
        for _ in range(200):
            text = _text(sre.parse(self.pattern.pattern), chance)
            if self.fires(text):
                yield text
                number -= 1
            if not number:
                return


def rules() -> list[Rule]:
    """Every rule of the scanner."""
    rows = from_yaml(DATA)["rules"]
    return [Rule(r["id"], tuple(r["keywords"]), re.compile(r["regex"]), r.get("entropy", 0)) for r in rows]


def _secret(found: re.Match[str]) -> str:
    return next((group for group in found.groups() if group), found[0])


def _entropy(text: str) -> float:
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def _text(parsed: Any, chance: random.Random) -> str:
    """A random text that the pattern matches, but for its conditions on what is around it."""
    return "".join(_piece(str(kind), value, chance) for kind, value in parsed)


def _piece(kind: str, value: Any, chance: random.Random) -> str:
    if kind == "LITERAL":
        return chr(value)
    if kind == "ANY":
        return chance.choice(PRINTABLE)
    if kind == "NOT_LITERAL":
        return chance.choice(PRINTABLE.replace(chr(value), ""))
    if kind == "IN":
        return chance.choice(_characters(value))
    if kind == "BRANCH":
        return _text(chance.choice(value[1]), chance)
    if kind == "SUBPATTERN":
        return _text(value[3], chance)
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, what = value
        return "".join(_text(what, chance) for _ in range(chance.randint(least, min(int(most), least + LONGER))))
    return ""  # edges


def _characters(value: Any) -> str:
    found = ""
    for kind, what in value:
        if str(kind) == "RANGE":
            found += "".join(map(chr, range(what[0], what[1] + 1)))
        elif str(kind) == "CATEGORY":
            found += SETS.get(str(what), PRINTABLE)
        elif str(kind) == "LITERAL":
            found += chr(what)
    if any(str(kind) == "NEGATE" for kind, _ in value):
        return "".join(set(PRINTABLE) - set(found)) or "x"
    return found
