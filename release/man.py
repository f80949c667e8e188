"""Man pages and shell completion of every command, from the texts that --help prints."""

import gzip
import inspect
from collections.abc import Iterator
from datetime import datetime, timezone

import click
from click.shell_completion import get_completion_class

from release.problem import ReleaseError

SHELLS = {
    "bash": "usr/share/bash-completion/completions/gpucheck",
    "zsh": "usr/share/zsh/vendor-completions/_gpucheck",
    "fish": "usr/share/fish/vendor_completions.d/gpucheck.fish",
}


def texts(cli: click.Command, version: str, date: int) -> dict[str, bytes]:
    """Path below the root of a package -> content: one man page a command, one completion script a shell."""
    pages = {
        f"usr/share/man/man1/{name}.1.gz": gzip.compress(page(context, name, version, date).encode(), mtime=0)
        for name, context in contexts(cli, "gpucheck", None)
    }
    return {**pages, **{path: completion(cli, shell).encode() for shell, path in SHELLS.items()}}


def completion(cli: click.Command, shell: str) -> str:
    """What a shell reads to complete the words of a command line."""
    import gpucheck.cli._shells  # noqa: F401 - the scripts of bash, zsh and fish

    kind = get_completion_class(shell)
    if kind is None:
        raise ReleaseError(f"click has no completion for {shell}")
    completer = kind(cli, {}, "gpucheck", "_GPUCHECK_COMPLETE")
    # Not source(): for bash it would ask the bash of this machine for its version.
    return completer.source_template % completer.source_vars()


def contexts(command: click.Command, name: str, parent: click.Context | None) -> Iterator[tuple[str, click.Context]]:
    """(``gpucheck-stack-lock``, context) of a command and all below it."""
    context = click.Context(command, info_name=name, parent=parent, terminal_width=80, max_content_width=80)
    yield context.command_path.replace(" ", "-"), context
    if isinstance(command, click.Group):
        for one in command.list_commands(context):
            below = command.get_command(context, one)
            if below is not None and not below.hidden:
                yield from contexts(below, one, context)


def page(context: click.Context, name: str, version: str, date: int) -> str:
    """One page in roff: man(7)."""
    command, day = context.command, datetime.fromtimestamp(date, timezone.utc).strftime("%Y-%m-%d")
    paragraphs = inspect.cleandoc(command.help or "").split("\f")[0].split("\n\n")
    lines = [f'.TH {_word(name.upper())} 1 {day} "gpucheck {version}" "gpucheck manual"', ".SH NAME"]
    lines += [f"{_plain(name)} \\- {_plain(' '.join(paragraphs[0].split()).rstrip('.'))}", ".SH SYNOPSIS"]
    usage = " ".join(command.collect_usage_pieces(context))
    lines += [f"\\fB{_plain(context.command_path)}\\fR {_plain(usage)}", ".SH DESCRIPTION"]
    for paragraph in paragraphs:
        if paragraph.startswith("\b"):
            lines += [".PP", ".nf", *map(_plain, paragraph.splitlines()[1:]), ".fi"]
        else:
            lines += [".PP", *map(_plain, paragraph.splitlines())]
    records = [record for one in command.get_params(context) if (record := one.get_help_record(context))]
    lines += [".SH OPTIONS"] if records else []
    for option, text in records:
        lines += [".TP", f"\\fB{_plain(option)}\\fR", _plain(" ".join(text.split())) or "\\&"]
    if isinstance(command, click.Group):
        names = [f"{name}-{one}" for one in command.list_commands(context)]
        lines += [".SH SEE ALSO", ",\n".join(f".BR {_word(one)} (1)" for one in names).replace(",\n", " ,\n")]
    elif context.parent is not None:
        lines += [".SH SEE ALSO", f".BR {_word(context.parent.command_path.replace(' ', '-'))} (1)"]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Text that roff prints as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.lstrip().startswith((".", "'")) else escaped


def _word(text: str) -> str:
    return text.replace("-", "\\-")
