"""gpucheck fleet, in this process and as one of its own."""

from click.testing import CliRunner

from gpucheck.cli import cli
from tests.forked import gpucheck


def run(*arguments, stdin=None):
    done = CliRunner().invoke(cli, ["fleet", *map(str, arguments)], input=stdin, standalone_mode=False)
    status = done.return_value if done.exception is None else getattr(done.exception, "exit_code", 1)
    message = getattr(done.exception, "message", "")
    return status, done.stdout, message


def whole(*arguments, stdin=None):
    """The command as a process, with all that it prints."""
    done = gpucheck("fleet", *arguments, given=stdin or b"", timeout_s=60)
    return done.returncode, done.stdout, done.stderr
