"""One self-contained page: no network, no additional file, and nothing from a host that could run.

Styles and scripts are inlined and named by hash in a content security policy; a host's strings reach the page as
escaped text (Jinja2) or as JSON data that scripts write with textContent only.
"""

import base64
import functools
import hashlib
import re
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup, escape

from gpucheck.model import Verdict
from gpucheck.printable import UNPRINTABLE, indented, printable

PAGES = Path(__file__).parent / "pages"
# What may end the data's script element or change how it is read; in JSON all of it can only stand inside strings.
UNSAFE = re.compile(rf"[<>&]|(?!\n){UNPRINTABLE.pattern}|\\u00[01][0-9a-f]|\\u007f")


def page(
    template: str, *, verdict: Verdict, data: Any, styles: tuple[str, ...], scripts: tuple[str, ...], **values: Any
) -> str:
    """Fill the template, which extends page.html.j2.

    verdict: the worst. data becomes the JSON of ``<script type="application/json" id="data">``.
    """
    style, script = _joined(styles), _joined(scripts)
    allowed = f"style-src {_hash(style)}; script-src {_hash(script)}"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    return (
        _environment()
        .get_template(template)
        .render(
            verdict=verdict,
            policy=policy,
            style=Markup(style),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own files
            data=Markup(json_data(data)),  # noqa: S704 - escaped by json_data
            **values,
        )
    )


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters["steps"] = steps
    return environment


def json_data(data: Any) -> str:
    """JSON that is safe inside a script element and free of control and direction characters."""
    return UNSAFE.sub(_escape, msgspec.json.encode(data).decode())


def steps(text: object) -> Markup:
    """Return printable text that keeps its line breaks: a fix has one step a line."""
    return escape(indented(str(text)))


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    return f"\\u{ord(character):04x}" if character in "<>&" else "\\ufffd"


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join((PAGES / name).read_text(encoding="utf-8").strip() for name in names)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
