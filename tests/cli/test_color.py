"""--color, NO_COLOR and TERM: when escapes are printed, to a terminal and to a pipe."""

import os

import pytest

from tests import forked
from tests.cli.commands import on_a_terminal
from tests.cli.test_help import ALL
from tests.shared import sampled

VERIFY = ("verify", "--simulate", "p100-pcie-x2", "--level", "quick", "--only", "inventory")


def output(*words, terminal=False, **surroundings):
    """What the command prints, on a terminal or into a file."""
    if terminal:
        return on_a_terminal(*words, **surroundings)[1]
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    return forked.gpucheck(*words, env=environment | {"TERM": "xterm", **surroundings}).stdout


@pytest.mark.parametrize(
    ("words", "terminal", "surroundings", "colored"),
    sampled([
        ((), False, {}, False),
        ((), True, {}, True),
        ((), True, {"NO_COLOR": "1"}, False),
        ((), True, {"TERM": "dumb"}, False),
        (("--color", "auto"), False, {}, False),
        (("--color", "always"), False, {}, True),
        (("--color=always",), True, {"NO_COLOR": "1"}, True),
        (("--color", "always"), True, {"TERM": "dumb"}, True),
        (("--color", "never"), True, {}, False),
    ], (0, 1, 2, 5, 6)),
)  # fmt: skip
def test_color(words, terminal, surroundings, colored):
    assert ("\x1b[" in output(*VERIFY, *words, terminal=terminal, **surroundings)) is colored


def test_color_before_the_command():
    assert "\x1b[" in output("--color", "always", *VERIFY)
    assert "\x1b[" not in output("--color", "always", *VERIFY, "--color", "never")


def test_a_file_and_json_have_no_color(tmp_path):
    output(*VERIFY, "--color", "always", "-o", str(tmp_path / "report.txt"))

    assert b"\x1b" not in (tmp_path / "report.txt").read_bytes()
    assert "\x1b" not in output(*VERIFY, "--color", "always", "--format", "json")


def test_a_program_on_a_simulated_machine_keeps_its_own_option():
    assert output("simulate", "p100-pcie-x2", "--", "echo", "--color=always") == "--color=always\n"


def test_every_command_has_the_option_once():
    assert {sum("--color" in param.opts for param in command.params) for command in ALL.values()} == {1}
