"""Characters that look like others, for names and numbers that were typed from a screen or copied from a page."""

import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches

# Cyrillic and Greek letters that look like Latin ones; full-width forms become plain ones by NFKC.
LATIN = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0445\u0443\u0456\u0455\u0458\u0501\u04bb\u0432\u043a\u043c\u0442\u043d\u0437\u03bf\u03b1\u03b9\u03c1\u03bd\u03c5\u03ba\u0131",
    "aeopcxyisjdhbkmth3oaipvuki",
)
SAME = str.maketrans({"0": "o", "1": "l", "i": "l", "|": "l", "!": "l", "_": "-", " ": "-"})
DIGITS = str.maketrans({"o": "0", "l": "1", "i": "1", "|": "1", "s": "5", "b": "8", "z": "2"})
NUMBER = re.compile(r"(?P<kind>s?x[il1|]d|nvm[il1|]|cuda)?[-:_ ]{0,3}(?P<code>[0-9oli|sbz]{1,9})")


def plain(text: str) -> str:
    """Lower case, in Latin letters and digits as far as others only look different in the font."""
    folded = unicodedata.normalize("NFKC", text).casefold().translate(LATIN)
    return "".join(c for c in folded if unicodedata.category(c) not in ("Mn", "Cf"))


def near(text: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Return the names close to a text; letters and digits that look the same count as equal."""
    by_skeleton = {plain(name).translate(SAME): name for name in names}
    return [by_skeleton[one] for one in get_close_matches(plain(text).translate(SAME), list(by_skeleton), n=most)]


def number_meant(text: str) -> str | None:
    """The code that a text looks like (``xid:70`` for ``xld:7O``); None where it looks like none or is one."""
    match = NUMBER.fullmatch(plain(text.strip()))
    if match is None or not re.search(r"[0-9]", match["code"]):
        return None
    code = match["code"].translate(DIGITS)
    kind = match["kind"]
    if kind:
        kind = "nvml" if kind.startswith("nv") else "cuda" if kind == "cuda" else kind[: kind.index("x") + 1] + "id"
    meant = f"{kind}:{int(code)}" if kind else str(int(code))
    return None if meant == text.strip() else meant
