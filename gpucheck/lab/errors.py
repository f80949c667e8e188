"""What can go wrong with the lab, as messages for a person: what, where, why, what to do. Never a traceback."""

import click

from gpucheck.model.finding.verdict import EXIT_STATUS, EXIT_USAGE, Verdict


class LabError(click.ClickException):
    """The lab or an image could not be made: something that it needs is missing here, or failed. Exit status 3."""

    exit_code = EXIT_STATUS[Verdict.UNKNOWN]
    several_lines = True  # the end of a program's output, and what to do, on lines of their own


class LabUsageError(LabError):
    """What was asked for cannot be: a taken subnet, a bad name. Exit status 64."""

    exit_code = EXIT_USAGE
