"""What can go wrong with the lab, as messages for a person: what, where, why, what to do. Never a traceback."""

import click

from gpucheck.model.verdict import EXIT_USAGE


class LabError(click.ClickException):
    """The lab could not be brought to the wanted state. Exit status 2."""

    exit_code = 2


class LabUsageError(LabError):
    """What was asked for cannot be: a taken subnet, a bad name. Exit status 64."""

    exit_code = EXIT_USAGE
