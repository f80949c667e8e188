"""What holds for every output, whatever the input was: of messages, texts, verdicts and marks of simulation."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gpucheck.knowledge import KnowledgeError
from gpucheck.model import Finding, Verdict
from gpucheck.model.finding.verdict import RANK
from tests.fuzz import hostile
from tests.fuzz.product import shown

SHORT, LONGEST_MESSAGE = 300, 1000
OWN = ("gpucheck.", "ansible_collections.gpucheck.")
# Control characters, directional and invisible ones, lone surrogates. Line breaks and tabs are looked at apart.
UNCLEAN = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
FORGED = re.compile(rf"^{hostile.FORGED}", re.MULTILINE)
OUR_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Wrong(AssertionError):
    """A broken rule of outputs, and where it shows."""

    def __init__(self, rule: str, detail: str = "") -> None:
        super().__init__(f"{rule}: {detail}" if detail else rule)


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
    if not text.strip():
        raise Wrong("a message without words")
    if len(text) < SHORT and "\n" not in text and not UNCLEAN.search(text):
        return  # it is fine however it is shown
    line, _, more = shown(ValueError(text)).removesuffix("\n").partition("\n")
    if more:
        raise Wrong("a message of several lines", ascii(f"{line} / {more}")[:160])
    if len(line) > LONGEST_MESSAGE:
        raise Wrong(f"a message of more than {LONGEST_MESSAGE} characters", f"{len(line)}: {line[:80]!a}")
    unclean(line, "a message")


def unclean(text: str, what: str) -> None:
    """Raises Wrong for a control or directional character."""
    found = UNCLEAN.search(text)
    if found:
        at = found.start()
        shown = ascii(text[max(0, at - 30) : at + 10])
        raise Wrong(f"{what} with a control, directional or invisible character", shown)


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
            rule = f"a check broke: {str(finding.seen).partition(':')[0]}"
            raise Wrong(rule, f"{finding.check}: {finding.seen}\n" + "\n".join(finding.evidence))
