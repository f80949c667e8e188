"""The option for the rendezvous of several hosts, with the former names of it."""

from collections.abc import Callable
from copy import copy

import click

from gpucheck.cli._shared.common import F


class _Renamed(click.Option):
    """An option whose help shows only its first name."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the help without the former name."""
        shown = copy(self)
        shown.opts = self.opts[:1]
        return click.Option.get_help_record(shown, ctx)


def rendezvous_option(former: str) -> Callable[[F], F]:
    """Return the decorator for ``--rdzv-endpoint``. former: accepted in place of it, and hidden."""
    return click.option(
        "--rdzv-endpoint",
        former,
        cls=_Renamed,
        metavar="HOST:PORT",
        help="Rendezvous of the hosts: address of host 0 and a free port. The same on every host.",
    )
