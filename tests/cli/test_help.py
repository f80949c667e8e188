"""Help texts: complete, in the forms of the style guide, with old option names accepted and not shown."""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from gpucheck.cli import cli

BANNED = re.compile(
    r"\b(tell|tells|told|wish|beside|leave away|in words|is none|whoever|somebody|nobody|yardstick|judges?|anew)\b"
    r"|held against|stands? in for|\bsays?\b|\bfolders?\b"
)
WIDEST_LINE = 60  # characters of a line in the list of commands


def commands(group: click.Group = cli, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command and subcommand by its name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            continue
        yield f"{path}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")


ALL = dict(commands())
OPTIONS = {
    f"{name} {option.opts[0]}": option
    for name, command in ALL.items()
    for option in command.params
    if isinstance(option, click.Option) and not option.hidden
}


def test_option_help_is_capital_to_period():
    texts = {name: option.help or "" for name, option in OPTIONS.items()}

    assert {name for name, text in texts.items() if not re.fullmatch(r"(?s)[A-Z].*\.", text)} == set()
    assert {name for name, text in texts.items() if BANNED.search(text)} == set()


def test_option_names_a_file_a_directory_or_a_number_of_seconds():
    """Not PATH, DIRECTORY, TEXT or FLOAT RANGE, which click makes of a type."""
    context = click.Context(click.Command("x"))
    values = {one.make_metavar(context) for one in OPTIONS.values() if not one.is_flag and not one.count}

    assert values & {"PATH", "DIRECTORY", "FOLDER", "TEXT", "INTEGER", "INTEGER RANGE", "FLOAT RANGE"} == set()


def test_command_help_starts_with_one_short_sentence():
    for name, command in ALL.items():
        text = (command.help or "").replace("\b", "")
        assert text.partition("\n\n")[0].endswith((".", ":")), name
        assert not BANNED.search(text), BANNED.search(text)
        assert " " not in name or not command.get_short_help_str(limit=WIDEST_LINE).endswith("..."), name


def test_list_of_commands_has_short_lines_without_a_period():
    for source in (Path("gpucheck") / "cli").glob("[a-z]*.py"):
        line = source.read_text(encoding="utf-8").splitlines()[0].strip('"')
        assert len(line) <= WIDEST_LINE, line
        assert re.match(r"[A-Z].*[^.]$", line), line


def test_no_command_has_more_than_twelve_options():
    """--timeout, which most commands have, is not counted."""
    names = [name.rpartition(" ")[0] for name, option in OPTIONS.items() if "--timeout" not in option.opts]

    assert {name for name in names if names.count(name) > 12} == set()
