"""Render reports as text, JSON, JUnit, Nagios, Prometheus, Markdown and HTML. Contains no verdict logic."""

from collections.abc import Callable
from importlib import import_module


def imported_later(module: str, name: str) -> Callable[..., str]:
    """Return a writer of a module that is imported when it is called: XML and Jinja2 take time to load."""

    def write(*arguments: object, **options: object) -> str:
        text: str = getattr(import_module(f"{__name__}.{module}"), name)(*arguments, **options)
        return text

    return write
