"""Colors of verdicts: no eye takes one for another, and every text can be read. Computed from the style sheet."""

import re
from itertools import combinations

import pytest

from gpucheck.render.write.html import PAGES, SHAPE
from gpucheck.render.write.terminal import HEAT

VERDICTS = ("pass", "warn", "fail")
COLORS = dict(
    re.findall(r"--([\w-]+): light-dark\((#\w{6}, #\w{6})\)", (PAGES / "tokens.css").read_text(encoding="utf-8"))
)
# WCAG 2.1: 1.4.11 for what must be told apart, 1.4.3 for text.
APART, TEXT = 3.0, 4.5


def luminance(color):
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def color(name, theme):
    return COLORS[name].split(", ")[theme]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("one", "other"), list(combinations(VERDICTS, 2)))
def test_verdicts_differ_in_luminance(one, other, theme):
    assert contrast(color(f"{one}-fill", theme), color(f"{other}-fill", theme)) >= APART


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("verdict", [*VERDICTS, "unknown"])
def test_text_on_a_verdict_is_readable(verdict, theme):
    assert contrast(color(f"{verdict}-fill", theme), color(f"{verdict}-ink", theme)) >= TEXT


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["ink", "soft", "accent", *VERDICTS, "unknown", "odd"])
def test_text_on_a_card_is_readable(name, theme):
    assert contrast(color(name, theme), color("card", theme)) >= TEXT


@pytest.mark.parametrize("sheet", ["tokens.css", "report.css", "fleet.css"])
def test_cells_and_badges_of_a_verdict_have_its_colors(sheet):
    """No other background for what shows a verdict."""
    style = (PAGES / sheet).read_text(encoding="utf-8")
    rules = re.findall(r"\.(?:badge|cell|heat td)\.(pass|warn|fail)[^{]*\{([^}]*)\}", style)

    assert all(f"var(--{verdict}-fill)" in rule and f"var(--{verdict}-ink)" in rule for verdict, rule in rules)
    assert len(rules) == 3


def test_verdicts_have_different_shapes():
    assert len(set(SHAPE.values())) == len(SHAPE)
    assert re.search(r"const SHAPE = (.*);", (PAGES / "page.js").read_text(encoding="utf-8"))


def test_cells_of_a_terminal_differ_in_luminance():
    shades = [f"#{red:02x}{green:02x}{blue:02x}" for (red, green, blue), _ in HEAT.values()]

    assert all(contrast(one, other) >= APART for one, other in combinations(shades, 2))
