"""The letters that every match of a pattern holds."""

import pytest

from gpucheck.knowledge.messages import NEVER, kinds, needed_text, needed_texts, rows


@pytest.mark.parametrize(
    ("pattern", "needed"),
    [
        (r"\bsystem not yet initialized", "system not yet initialized"),
        (r"\bGPU is lost\b", "GPU is lost"),
        (r"abc?def", "def"),
        (r"ab*cd{2}ef+gh", "ef"),
        (r"a|b", ""),
        (r"(?:long text|x) is\.that", " is.that"),
        (r"[abc]+ text [^\]x]end", " text "),
        (r"\bst=(?P<code>\d{1,3}) vendor", " vendor"),
        (r"\(NVLS\) Multicast", "(NVLS) Multicast"),
        ("", ""),
    ],
)
def test_the_longest_text_outside_of_groups(pattern, needed):
    assert needed_text(pattern) == needed


def test_each_alternative_has_a_text_of_its_own():
    assert needed_texts(r"GPU_IS_LOST|GPU is (?:lost|gone)") == ("GPU_IS_LOST", "GPU is ")
    assert needed_texts(r"lost|\d{3}") == ()


def test_nearly_every_pattern_of_a_message_names_letters():
    """A pattern without them is searched in every line."""
    patterns = [(row.key, p) for kind in kinds() for row in rows(kind) for p in row.patterns if p != NEVER]

    without = [key for key, pattern in patterns if not needed_texts(pattern.removeprefix("(?i)"))]

    assert len(without) <= 4, without
