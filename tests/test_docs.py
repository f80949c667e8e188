"""The pages for people: in plain English, with links that lead somewhere, and all of them in the index."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))]
# Written by the program from texts of the code, which are held to the same words where they are written.
GENERATED = {"checks.md", "diagnose-figures.md", "stack-rules.md"}
BANNED = {
    r"\blicences?\b": "license",
    r"\btold\b|\btells?\b": "reported, known, distinguished",
    r"\b(a|the|this|that|no|their|your|its|stated|site's) wish(es)?\b|\bwishes\b": "specification",
    r"\bbeside the\b": "in addition to, next to",
    r"\b(leave|leaves|left|leaving)\b.{0,15}\baway\b": "omit",
    r"\bin words\b": "as text",
    r"\b(is|are) none of\b": "is not",
    r"\b(no|some)body\b": "name the actor, or the state",
    r"\bsa(id|ys|ying)\b": "reports, prints, states",
    r"\bours\b|\bcame with us\b": "installed by gpucheck",
    r"\bstand(s|ing)?[ _-]ins?\b": "stub, simulated",
    r"\b(crowd|alike|sick|yardstick|anew|telephone|nonsense|mends?)\b": "contention, identical, unhealthy, reference",
    r"\bin force\b|\bways? (out|back)\b": "active; resolution, rollback",
    r"\b(tak(e|es|en|ing)|took) (back|away)\b": "revert, remove",
    r"\b(hold|holds|held)\b.{0,40}\bagainst\b": "compared with",
    r"\brefus(e|es|ed|al|als)\b": "reject",
    r"\bjudg(e|es|ed|ing)\b": "evaluate",
}


def prose(path):
    """The text of a page without code."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "`code`", text)


def anchors(path):
    """The anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def name(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [p for p in PAGES if p.name not in GENERATED], ids=name)
def test_page_is_in_plain_english(path):
    found = [
        f"{word!r} (use: {instead}): {line.strip()[:100]}"
        for line in prose(path).splitlines()
        for pattern, instead in BANNED.items()
        for word in [m.group() for m in re.finditer(pattern, line, re.IGNORECASE)]
    ]
    assert not found


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", path.read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        other = (path.parent / file).resolve() if file else path
        assert other.exists(), f"{name(path)} links to {target}"
        assert not anchor or anchor in anchors(other), f"{name(path)} links to {target}"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_files_that_a_page_names_are_there(path):
    files = set(re.findall(r"`((?:tests|bench|playbooks|gpucheck|images|docs)/[\w./-]*)`", path.read_text("utf-8")))

    assert not sorted(file for file in files if not (ROOT / file).exists())


def test_index_has_every_page():
    index = set(re.findall(r"\]\(([\w./-]+\.md)\)", (DOCS / "README.md").read_text(encoding="utf-8")))

    assert {path.name for path in DOCS.glob("*.md")} - {"README.md"} <= index


def test_glossary_names_the_source_of_its_rates():
    rows = (DOCS / "glossary.md").read_text(encoding="utf-8").splitlines()

    rates = [row for row in rows if row.startswith("|") and re.search(r"\d GB/s|\babout 0\.\d", row)]

    assert len(rates) >= 3
    assert not [row for row in rates if "source" not in row]
