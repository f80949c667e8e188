"""Redaction before other judges: a public secret scanner, names by log format, and texts that are made to be slow."""

import re
import time

import pytest

from gpucheck.host.recording.redaction import Pseudonyms, redacted
from gpucheck.host.recording.redaction._rules import rules, without_secrets
from tests.host.recording import scanner
from tests.host.recording.formats import FORMATS
from tests.host.recording.test_redaction_planted import recording, text_of
from tests.shared import sampled

SCANNER = scanner.rules()
EXAMPLES = 3
PSEUDONYM = re.compile(r"redacted-[0-9a-f]{8}")
# Other rules find the parts of their examples, or they match nothing but text around them.
WITHOUT_EXAMPLE = {
    "airtable-personnal-access-token",
    "facebook-access-token",
    "sidekiq-sensitive-url",
    "slack-webhook-url",
}


@pytest.mark.parametrize("rule", SCANNER, ids=lambda rule: rule.id)
def test_no_rule_of_a_scanner_fires_on_redacted_text(rule):
    """Texts that this rule reports are not reported by any rule afterwards."""
    for text in rule.examples(EXAMPLES):
        shown = PSEUDONYM.sub("x", without_secrets(text, lambda _: "redacted-0123abcd"))

        assert [one.id for one in SCANNER if one.fires(shown)] == [], (text, shown)


def test_the_scanner_has_an_example_for_nearly_every_rule():
    assert {rule.id for rule in SCANNER if not list(rule.examples(1))} == WITHOUT_EXAMPLE


@pytest.mark.parametrize(("text", "hidden"), FORMATS)
def test_names_in_formats_of_logs_do_not_stay(text, hidden):
    after = text_of("log", redacted(recording("log", text), Pseudonyms(b"salt"))).lower()

    assert all(one.lower() in text.lower() for one in hidden)
    assert [one for one in hidden if one.lower() in after] == []


@pytest.mark.parametrize("section", ["shapes", "following", "logs", "hardware"])
def test_every_match_of_a_rule_holds_one_of_its_words(section):
    """Or it is not searched for."""
    for words, pattern in rules(section):
        one = scanner.Rule(pattern.pattern, (), pattern, 0)
        examples = list(one.examples(20))

        assert all(any(word in text.lower() for word in words) for text in examples), (words, pattern.pattern)


NOISE_S = 0.02
SIZE = 1 << 12
UNITS = (
    *(
        "a.",
        "a-",
        "a@",
        "a:",
        "a://a:",
        "key=",
        'key="',
        '\\"',
        "[1-2],",
        "0:",
        "0000:",
        "token ",
        "mysql a -p",
        "ldap -w ",
    ),
    *("user ", "Nodes a1,", "for a from ", "su for a by ", "pod a/", "dc=a,", "serial:  ", "nfs a:/b ", "guid "),
    *(
        "-----BEGIN PRIVATE KEY",
        "adafruit ",
        "kind: secret data: ",
        "A_HOST=",
        "\\",
        " ",
        "search a ",
        "xn--a.",
        "a-gpu-1",
    ),
)


@pytest.mark.parametrize("unit", sampled(UNITS, lambda number, _: number % 3 == 0))
def test_a_long_line_takes_linear_time(unit):
    """Four times the line takes less than eight times the processor time."""

    def seconds(size):
        text = (unit * size)[:size]
        start = time.process_time()
        redacted(recording("log", text), Pseudonyms(b"salt"))
        return time.process_time() - start

    short = max(min(seconds(SIZE), seconds(SIZE)), NOISE_S)

    assert seconds(4 * SIZE) < 8 * short
