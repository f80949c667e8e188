"""Write diagram and table of docs/architecture.md: python -m tests.architecture_page

The packages, their order and their descriptions come from the code: MAY_IMPORT of tests/test_house.py and the
docstring of each package. The rest of the page is written by hand; tests/test_architecture.py resolves each name in it.
"""

import ast
from functools import cache
from pathlib import Path

from tests.test_house import BELOW_ALL, MAY_IMPORT, PACKAGE

PAGE = PACKAGE.parent / "docs" / "architecture.md"
TOP = "cli"

BEGIN, END = "<!-- Generated: python -m tests.architecture_page -->\n", "<!-- End of the generated part -->\n"


@cache
def layer(package: str) -> int:
    """Return 0 for a package that imports no other, else one more than the highest that it may import."""
    return max((layer(below) + 1 for below in MAY_IMPORT[package]), default=0)


def packages() -> list[str]:
    """Return every package that MAY_IMPORT describes, lowest layer first. What all may import is not among them."""
    return sorted(MAY_IMPORT.keys() - BELOW_ALL, key=lambda package: (layer(package), package))


def reachable(package: str) -> set[str]:
    """Return every package that is imported directly or through another."""
    return set(MAY_IMPORT[package]).union(*(reachable(below) for below in MAY_IMPORT[package]))


def nearest(package: str) -> list[str]:
    """Return the permitted imports that do not follow from other permitted imports."""
    below = MAY_IMPORT[package]
    return sorted(one for one in below if not any(one in reachable(other) for other in below))


def description(package: str) -> str:
    """Return the docstring of a package as one line, without literal marks of reStructuredText."""
    source = (PACKAGE / package / "__init__.py").read_text(encoding="utf-8")
    summary = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")[0]
    return " ".join(summary.replace("``", "`").split())


def diagram() -> str:
    """Return a Mermaid flowchart: the packages by layer, and the arrows of ``nearest``."""
    lines = ["```mermaid", "flowchart TD", f"  {TOP}"]
    for number in range(max(map(layer, packages())), -1, -1):
        names = [package for package in packages() if layer(package) == number]
        lines += [f'  subgraph layer{number}["layer {number}"]', *(f"    {name}" for name in names), "  end"]
    used = set().union(*(reachable(package) for package in packages()))
    lines += [f"  {TOP} --> {package}" for package in packages() if package not in used]
    lines += [f"  {package} --> {below}" for package in packages() for below in nearest(package)]
    return "\n".join([*lines, "```"]) + "\n"


def table() -> str:
    """Return one row per package, highest layer first: what it does and what it may import."""
    rows = [f"| `{TOP}` | top | {description(TOP)} | all |"]
    for package in sorted(packages(), key=lambda package: (-layer(package), package)):
        below = ", ".join(sorted(MAY_IMPORT[package])) or "none"
        rows.append(f"| `{package}` | {layer(package)} | {description(package)} | {below} |")
    return "\n".join(["| package | layer | purpose | may import |", "|---|---|---|---|", *rows]) + "\n"


def page() -> str:
    """Return the whole page, with diagram and table as they are now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return "\n".join([before + BEGIN, diagram(), table(), END + rest.partition(END)[2].removesuffix("\n")]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.relative_to(Path.cwd()) if PAGE.is_relative_to(Path.cwd()) else PAGE)
