"""Text of foreign origin, made safe to print: its control characters, line breaks and invisible characters are shown.

Foreign is what gpucheck did not write itself: arguments, file names, and what hosts, logs, reports and recordings hold.
Raw, it could drive the terminal, begin a line that looks like one of gpucheck, or hide its content.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from operator import is_not
from typing import Any, TypeVar

# General categories Cc, Cf, Cs, Co, Zl and Zp, what Unicode lists as default-ignorable, and what XML 1.0 cannot hold.
_SETS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\ufffe\uffff\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U0010ffff"
)
UNPRINTABLE = re.compile(f"[\\t\\n{_SETS}]")
# Colors as gpucheck writes them: codes without blinking, inverse and hidden text (5 to 9).
COLOR = r"\x1b\[(?![5-9]m)[0-9;]{0,30}m"
_ON_A_TERMINAL = re.compile(rf"(?P<kept>{COLOR})|[{_SETS}]")
NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
LONGEST = 1000
# Fields with several lines of their own: a step, or a line of output, on each.
PROSE = frozenset({"why", "fix", "evidence"})
_WITHOUT_TEXT = frozenset({int, float, bool, type(None)})
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def printable(text: str) -> str:
    r"""Return the text on one line, every unprintable character as an escape: ``\n``, ``\x1b``, ``\u202e``."""
    return text if text.isascii() and text.isprintable() else UNPRINTABLE.sub(_escape, text)


def excerpt(text: str, limit: int) -> str:
    """Return the beginning of a text on one line of at most `limit` characters, unprintable ones as blanks."""
    shown = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}..."


def meant(word: str, known: Iterable[str], most: int = 1, cutoff: float = 0.6) -> str:
    """Return `` Did you mean a or b?`` with the nearest known words; empty if none is near."""
    from difflib import get_close_matches

    near = get_close_matches(word[:80], list(known), most, cutoff)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def counted(count: int, what: str) -> str:
    """Return ``1 GPU`` or ``8 GPUs``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def bytes_text(count: int) -> str:
    """Return ``30.4 GB``; decimal units."""
    units = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    return next((f"{count / unit:.1f} {name}" for unit, name in units if count >= unit), f"{count} B")


def some(words: Sequence[str], most: int) -> str:
    """Return ``a, b and 3 more``: the first words, and how many there are besides."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def one_line(text: str, limit: int = LONGEST) -> str:
    """Return printable text of about `limit` characters at most; the middle is left out, and its length is stated."""
    shown = printable(text)
    if len(shown) <= limit:
        return shown
    end = limit // 3
    return f"{shown[: limit - end]}... ({len(shown) - limit} characters omitted) ...{shown[-end:]}"


def indented(text: str, indent: int = 2) -> str:
    """Return printable text of several lines, each after the first behind `indent` spaces: none begins a line."""
    return ("\n" + " " * indent).join(map(printable, text.split("\n")))


def folded(text: str) -> str:
    """Return prose of several lines on one."""
    return printable(" ".join(text.split("\n")))


def for_terminal(text: str) -> str:
    """Return a whole output with everything unprintable escaped but line breaks, tabs and colors: the last barrier.

    The escapes are those of JSON, so that JSON stays what it is.
    """
    if text.isascii() and text.isprintable():
        return text
    return _ON_A_TERMINAL.sub(lambda found: found["kept"] or _escape(found), text)


def cleaned(value: T, *, lines: bool = False) -> T:
    """Return a value of the model in which every string is printable; the same object where it was so already.

    lines: line breaks stay, as they do in PROSE.
    """
    given: Any = value
    new: Any = value
    if type(given) is str:
        if not (given.isascii() and given.isprintable()):
            shown = indented(given, 0) if lines else printable(given)
            new = given if shown == given else shown
    elif isinstance(given, (tuple, list)):
        items = [cleaned(item, lines=lines) for item in given]
        if any(map(is_not, items, given)):
            new = type(given)(*items) if hasattr(given, "_fields") else type(given)(items)
    elif isinstance(given, dict):
        keys, items = [cleaned(key) for key in given], [cleaned(item) for item in given.values()]
        if any(map(is_not, keys, given)) or any(map(is_not, items, given.values())):
            new = dict(zip(keys, items, strict=True))
    elif changes := _changes(given):
        from msgspec.structs import replace

        new = replace(given, **changes)
    return new  # type: ignore[no-any-return]


def _changes(given: Any) -> dict[str, Any]:
    """The fields of a struct that were not printable, cleaned; nothing for what is no struct."""
    changes = {}
    for name in getattr(given, "__struct_fields__", ()):
        field = getattr(given, name)
        if type(field) not in _WITHOUT_TEXT and (shown := cleaned(field, lines=name in PROSE)) is not field:
            changes[name] = shown
    return changes


def of_printable(view: F) -> F:
    """Decorate a view: it gets cleaned values only, so that no place in it has to remember."""

    @wraps(view)
    def shown(*values: Any, **options: Any) -> Any:
        return view(*map(cleaned, values), **{name: cleaned(option) for name, option in options.items()})

    return shown  # type: ignore[return-value]


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in NAMED:
        return NAMED[character]
    code = ord(character)
    if code < 0x20:
        return f"\\x{code:02x}"
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    code -= 0x10000  # as JSON writes it, in two halves
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def ranges(numbers: Iterable[int]) -> str:
    """Return rising numbers as Linux lists CPUs: ``0-3,6``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
