"""Types of option values: seconds, and inputs that are given once."""

import math
from typing import Any

import click

from gpucheck.cli._shared.output import Problem

DAY = 86_400.0


class Number(click.FloatRange):
    """A finite number within limits; click's own range takes ``nan``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


def seconds(least: float = 1.0) -> Number:
    """Return the type of a time limit: up to a day, which no run of a step takes."""
    return Number(min=least, max=DAY)


def once(_ctx: click.Context, param: click.Parameter, values: tuple[Any, ...]) -> Any:
    """Return the value of an option that is declared as repeatable, so that none is lost. Raises Problem."""
    if len(values) > 1:
        raise Problem(f"{param.opts[0]} is given {len(values)} times ({', '.join(map(str, values))}). Give it once.")
    return values[0] if values else None
