"""gpucheck fleet, in this process and as one of its own."""

import subprocess
import sys

from click.testing import CliRunner

from gpucheck.cli import cli


def run(*arguments, stdin=None):
    done = CliRunner().invoke(cli, ["fleet", *map(str, arguments)], input=stdin, standalone_mode=False)
    status = done.return_value if done.exception is None else getattr(done.exception, "exit_code", 1)
    message = getattr(done.exception, "message", "")
    return status, done.stdout, message


def whole(*arguments, stdin=None):
    """The command as a process, with all that it prints."""
    command = [sys.executable, "-m", "gpucheck", "fleet", *map(str, arguments)]
    done = subprocess.run(command, input=stdin or b"", capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()
