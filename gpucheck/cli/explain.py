"""Say what a cause, a check or an Xid means, how it is decided, how to confirm it by hand, and how to fix it."""

import textwrap
from collections.abc import Iterator
from difflib import get_close_matches

import click

from gpucheck.cli._common import Problem

WIDTH = 100


@click.command()
@click.argument("what", metavar="CAUSE|CHECK|xid:CODE")
def COMMAND(what: str) -> None:  # noqa: N802 - the name the command walk looks for
    """Explain a cause key, a check, or an Xid code of the kernel log.

    \b
    gpucheck explain acs-redirect
    gpucheck explain kernel-log
    gpucheck explain xid:79
    """
    explain = _kind(what)
    click.echo("\n".join(explain))


def _kind(what: str) -> Iterator[str]:
    from gpucheck.knowledge import causes

    name, colon, code = what.lower().partition(":")
    if name == "xid" and colon:
        return _xid(code)
    checks, known = _checks(), causes()
    if name in known and name in checks:
        return iter([*_cause(name), "", *checks[name]])
    if name in known:
        return _cause(name)
    if name in checks:
        return iter(checks[name])
    close = get_close_matches(name, [*known, *checks], n=3)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    raise Problem(f"{what}: neither a cause nor a check.{hint} See: gpucheck verify --list, or give xid:CODE.")


def _cause(name: str) -> Iterator[str]:
    from gpucheck.knowledge import causes

    cause = causes()[name]
    yield click.style(f"{name}  (cause)", bold=True)
    yield from _part("means", cause.meaning)
    yield from _part("confirm", cause.confirm)
    yield from _part("fix", cause.remedy)
    yield from _part("source", cause.source)


def _checks() -> dict[str, list[str]]:
    """Whatever a finding may be named after, explained: the steps of a run, and what its report is held against."""
    from gpucheck import against, run

    found = {
        name: list(_check(step.name, step.about, step.tags, f"gpucheck verify --only {step.name} -v"))
        for step in run.all_steps()
        for name in (step.name, *step.also)
    }
    for name, about in against.ABOUT.items():
        found[name] = list(_check(name, about, frozenset({"report"}), f"gpucheck verify {against.OPTION[name]} -v"))
    return found


def _check(name: str, about: str, tags: frozenset[str], command: str) -> Iterator[str]:
    question, _, rest = about.strip().partition("\n\n")
    yield click.style(f"{name}  (check: {', '.join(sorted(tags))})", bold=True)
    yield from _part("asks", question.partition(": ")[2] or question)
    yield from _part("decides", rest)
    yield from _part("run it", command)


def _xid(code: str) -> Iterator[str]:
    from gpucheck.knowledge.xid import xids

    row = xids().get(int(code)) if code.isdigit() else None
    if row is None:
        known = ", ".join(map(str, sorted(xids())))
        raise Problem(f"xid:{code}: not in the table. There are: {known}.")
    yield click.style(f"Xid {code}", bold=True)
    yield from _part("means", row.reading)
    yield from _part("verdict", {"note": "nothing to do for the host"}.get(row.verdict, row.verdict.upper()))
    yield from _part("at once", row.immediate)
    if row.later:
        yield from _part("then", row.later)
    if row.cause:
        yield from _part("cause", f"{row.cause} (gpucheck explain {row.cause})")
    yield from _part("confirm", f"journalctl -k | grep 'NVRM: Xid' | grep ': {code},'")
    yield from _part("source", "NVIDIA's Xid catalogue, https://docs.nvidia.com/deploy/xid-errors/")


def _part(label: str, text: str) -> list[str]:
    words = " ".join(text.split())
    return textwrap.wrap(words, WIDTH, initial_indent=f"  {label:<8} ", subsequent_indent=" " * 11)
