"""What holds for every output, whatever the input was: of messages, texts, verdicts and marks of simulation."""

import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpucheck.knowledge import KnowledgeError
from gpucheck.model import Finding, Verdict
from gpucheck.model.finding.verdict import RANK
from tests.fuzz import hostile
from tests.fuzz.product import shown

ROOT = Path(__file__).parents[2]
PRODUCT = (ROOT / "gpucheck", ROOT / "playbooks")
SHORT, LONGEST_MESSAGE = 300, 1000
OWN = ("gpucheck.", "ansible_collections.gpucheck.")
INTERRUPT = "interrupt_slow_work"  # the handler in limits.py is where an input was interrupted, not why
# Control characters, directional and invisible ones, lone surrogates. Line breaks and tabs are looked at apart.
UNCLEAN = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
FORGED = re.compile(rf"^{hostile.FORGED}", re.MULTILINE)
OUR_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Wrong(AssertionError):
    """A broken rule of outputs. rule: the same words for all that break it. where: the line, if known."""

    def __init__(self, rule: str, detail: str = "", where: str = "") -> None:
        super().__init__(f"{rule}: {detail}" if detail else rule)
        self.rule, self.detail, self.where = rule, detail, where


@contextmanager
def refusing(*expected: type[Exception]) -> Iterator[None]:
    """Around a reader: it may raise its own errors and the named built-in ones, with a message that can be shown.

    Its own are classes of the product, but for KnowledgeError: that is for damaged tables of gpucheck itself.
    """
    try:
        yield
    except Wrong:
        raise
    except Exception as error:
        own = type(error).__module__.startswith(OWN) and not isinstance(error, KnowledgeError)
        # No subclass of ValueError: int() and decode() raise those from anywhere.
        if not own and type(error) not in expected and not (OSError in expected and isinstance(error, OSError)):
            raise
        message(error)


def message(error: BaseException) -> None:
    """One line, bounded and clean, where it is shown to a person."""
    text = str(error.args[0] if error.args else error)
    if isinstance(error, OSError):
        text = error.strerror or text  # a caller shows this and the name that it knows
    where = product_line(error)
    if not text.strip():
        raise Wrong("a message without words", where=where)
    if len(text) < SHORT and "\n" not in text and not UNCLEAN.search(text):
        return  # it is fine however it is shown
    line, _, more = shown(ValueError(text)).removesuffix("\n").partition("\n")
    if more:
        raise Wrong("a message of several lines", ascii(f"{line} / {more}")[:160], where)
    if len(line) > LONGEST_MESSAGE:
        raise Wrong(f"a message of more than {LONGEST_MESSAGE} characters", f"{len(line)}: {line[:80]!a}", where)
    unclean(line, "a message", where)


def unclean(text: str, what: str, where: str = "") -> None:
    """Raises Wrong for a control or directional character."""
    found = UNCLEAN.search(text)
    if found:
        at = found.start()
        shown = ascii(text[max(0, at - 30) : at + 10])
        raise Wrong(f"{what} with a control, directional or invisible character", shown, where)


def terminal(text: str, what: str) -> None:
    """Text for a terminal: our colours and nothing else drives it, and no line is the input's."""
    plain = OUR_COLOURS.sub("", text)
    unclean(plain, what)
    found = FORGED.search(plain)
    if found:
        raise Wrong(
            f"{what} with a line that the input wrote", ascii(plain[max(0, found.start() - 60) : found.end() + 10])
        )


def markup(text: str, what: str) -> None:
    """HTML or SVG: what an input wrote is text, never a tag."""
    if f"<{hostile.MARK}" in text:
        at = text.index(f"<{hostile.MARK}")
        raise Wrong(f"{what} with a tag of the input", ascii(text[max(0, at - 60) : at + 40]))


def no_better(verdict: Verdict, findings: Iterable[Finding], what: str) -> None:
    """A whole is never better than its worst part."""
    for finding in findings:
        if finding.verdict in RANK and RANK.index(finding.verdict) < RANK.index(verdict):
            raise Wrong(f"{what} better than a finding", f"{verdict.name}, but {finding.check} {finding.verdict.name}")


def simulated(text: str, what: str) -> None:
    """No simulated result without its mark."""
    if "SIMULATED" not in text.upper():
        raise Wrong(f"{what} of simulated hardware that does not say so", ascii(text[:80]))


def no_defect(findings: Iterable[Finding]) -> None:
    """No check broke on what it was given."""
    for finding in findings:
        if "defect of gpucheck" in finding.why:
            where = next(
                (_short(line.partition(" in ")[0]) for line in finding.evidence[::-1] if "/gpucheck/" in line), ""
            )
            raise Wrong(
                f"a check broke: {str(finding.seen).partition(':')[0]}", f"{finding.check}: {finding.seen}", where
            )


def product_line(error: BaseException) -> str:
    """``gpucheck/imports/x.py:12``, the innermost line of the product; of any code where none is the product's."""
    frame = _innermost(error)
    return f"{_short(frame.filename)}:{frame.lineno}" if frame else ""


def product_function(error: BaseException) -> str:
    """The same with the function in place of the line: a slow loop is interrupted on any of its lines."""
    frame = _innermost(error)
    return f"{_short(frame.filename)} {frame.name}" if frame else ""


def _innermost(error: BaseException) -> traceback.FrameSummary | None:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name != INTERRUPT]
    ours = [frame for frame in frames if any(Path(frame.filename).is_relative_to(folder) for folder in PRODUCT)]
    return next(reversed(ours or frames), None)


def _short(place: str) -> str:
    return place.removeprefix(f"{ROOT}/")
