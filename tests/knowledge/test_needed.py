"""The letters that every match of a pattern holds."""

import pytest

from gpucheck.knowledge._needed import needed_texts
from gpucheck.knowledge.messages import kinds, rows


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


def test_every_pattern_of_a_message_names_letters_or_is_short():
    """A pattern without them is searched in every line."""
    without = [row.key for kind in kinds() for row in rows(kind) for p in row.patterns if len(needed_text(p)) < 3]

    assert len(without) <= 24, without
