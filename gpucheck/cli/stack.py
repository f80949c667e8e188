"""gpucheck stack: which driver, CUDA, cuDNN, NCCL and frameworks belong on which host, and why."""

from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from gpucheck.cli._common import (
    OutputFile,
    Problem,
    note,
    write_result,
)
from gpucheck.cli._output import is_stdout
from gpucheck.cli._stack import (
    EXIT_IMPOSSIBLE,
    EXIT_UNKNOWN,
    ExistingFile,
    F,
    Formats,
    as_json,
    asked_kind,
    bundle_option,
    every_option,
    guarded,
    kind_options,
    knowledge_option,
    marked,
    refuse,
    spec_of,
)
from gpucheck.cli._stack_check import check
from gpucheck.cli._stack_repositories import check_repositories
from gpucheck.processes.atomic import SHARED

SHORT_HELP = "One compatible set of driver, CUDA, cuDNN, NCCL and frameworks, or the reason why not."
EXIT_MOVES = 1


def spec_option(command: F) -> F:
    """--spec, and --wish, its former name."""

    def former(context: click.Context, _parameter: click.Parameter, value: Path | None) -> None:
        context.meta["former"] = value

    def chosen(context: click.Context, _parameter: click.Parameter, value: Path) -> Path:
        return context.meta["former"] or value

    kind, file = ExistingFile, Path("stack.yml")
    command = click.option("--wish", type=kind, hidden=True, is_eager=True, expose_value=False, callback=former)(
        command
    )
    shown = "The stack specification."
    return click.option("--spec", type=kind, default=file, show_default=True, callback=chosen, help=shown)(command)


facts_option = click.option(
    "--facts", multiple=True, required=True, type=ExistingFile, help="Facts of hosts (JSON). Repeatable."
)
lock_option = click.option("--lock", "lock_file", type=ExistingFile, default=Path("stack.lock.yml"), show_default=True)


@click.group("stack", short_help=SHORT_HELP)
@knowledge_option
def COMMAND() -> None:  # noqa: N802 - the name every command module has
    """Resolve, lock, explain and check the NVIDIA stack. Nothing here changes a machine.

    Exit status: 0 a set exists, 2 impossible, 3 a GPU, system or version is not known, 64 wrong usage.
    diff: 1 something would move. check: as every judging command.
    """


@COMMAND.command("resolve")
@kind_options
@click.option("--format", "format_", type=Formats, default="text", show_default=True)
def resolve_command(wanted: tuple[str, ...], prefer: str, format_: str, **kind: Any) -> None:
    """Print the one set that belongs on a kind of host; without --gpu or --os, on this host."""
    from gpucheck import stack
    from gpucheck.stack.plan.unconfirmed import with_unconfirmed
    from gpucheck.stack.text import stack_text

    def work() -> Any:
        asked, spec = asked_kind(**kind), spec_of(wanted, prefer)
        found = stack.resolve_target(asked.target, spec)
        said = found if isinstance(found, stack.Refusal) else with_unconfirmed(asked.target, found, spec)
        return asked.simulation, asked.mark, said

    simulation, mark, found = guarded(work)
    if isinstance(found, stack.Refusal):
        refuse(found, format_)
    if format_ == "json":
        click.echo(as_json(found, simulated=True, simulation=simulation) if simulation else as_json(found))
    else:
        click.echo(mark + marked(stack_text(found), simulation))


@COMMAND.command("explain")
@click.argument("component", required=False)
@kind_options
@click.option("--lock", "lock_file", type=ExistingFile, help="Explain a locked set instead.")
@click.option("--group", help="Which group of the lock.")
@click.option("--host", help="Which host of the lock.")
@click.option("--format", "format_", type=Formats, default="text", show_default=True)
def explain_command(
    component: str | None,
    lock_file: Path | None,
    group: str | None,
    host: str | None,
    wanted: tuple[str, ...],
    prefer: str,
    format_: str,
    **kind: Any,
) -> None:
    """Print why a part has its version, what holds it down, and what would lift that; without COMPONENT, every part."""
    from gpucheck import stack
    from gpucheck.cli._stack_lock import locked_set
    from gpucheck.stack.explain import SCHEMA, component_named, explain
    from gpucheck.stack.text import explain_text

    try:
        part = component_named(component) if component else None
    except ValueError as error:
        raise Problem(str(error)) from error
    if lock_file is None and (group or host):
        raise Problem("--group and --host name something in a lock: add --lock FILE.")
    if lock_file is not None and (wanted or any(kind.values())):
        raise Problem("--lock already says what is meant: take --gpu, --os, --want and the like away.")

    def work() -> Any:
        if lock_file is not None:
            return None, "", *locked_set(lock_file, group, host)
        asked, spec = asked_kind(**kind), spec_of(wanted, prefer)
        return asked.simulation, asked.mark, asked.target, spec, stack.resolve_target(asked.target, spec)

    simulation, mark, target, spec, found = guarded(work)
    if isinstance(found, stack.Refusal):
        refuse(found, format_)
    explanations = explain(target, spec, found, part)
    if format_ == "json":
        answer = {"schema": SCHEMA, "simulated": simulation is not None, "components": explanations}
        click.echo(as_json(answer))
    else:
        click.echo(mark + marked(explain_text(explanations), simulation))


@COMMAND.command("lock")
@spec_option
@facts_option
@click.option(
    "-o", "--output", type=OutputFile(), default=Path("stack.lock.yml"), show_default=True, help="- is stdout."
)
@click.option("--upgrade", is_flag=True, help="Choose anew also where the present lock still holds.")
@click.option("--common", is_flag=True, help="The newest set that serves all groups, or the reason why none does.")
@every_option
@bundle_option
def lock_command(
    spec: Path,
    facts: tuple[Path, ...],
    output: Path,
    upgrade: bool,
    common: bool,
    every: Path | None,
    bundle: Path | None,
) -> None:
    """Resolve every group of hosts into a lock file; an unchanged lock is not touched.

    A host that cannot be served is refused by itself and named on stderr: the lock is written for the others, and the
    exit status is 2 (impossible) or 3 (only unknown GPUs, systems or versions).
    """
    from gpucheck import stack
    from gpucheck.cli._stack_lock import echo_plans, made_lock
    from gpucheck.stack.lock import read_lock_file, write_lock
    from gpucheck.stack.text import lock_changes, refused_text

    if bundle is not None and every is None:
        raise Problem("--bundle serves whole fleets: say --every FOLDER with it")
    if every is not None and is_stdout(output):
        raise Problem("--every reads the lock file that is written. Name a file with -o.")

    present = output.is_file() and not is_stdout(output)

    def work() -> Any:
        # A damaged lock is replaced only when that is asked for: it may hold what the hosts run today.
        previous = read_lock_file(output) if present and not upgrade else None
        return previous, made_lock(spec, facts, previous, common=common)

    previous, made = guarded(work)
    if isinstance(made, stack.Refusal):
        refuse(made, "text")
    text = write_lock(made)
    if present and output.read_text(encoding="utf-8") == text:
        note(f"{output}: unchanged")
    else:
        write_result(text, output, mode=SHARED)
        for line in lock_changes(previous, made):
            note(f"{output}: {line}")
    for line in refused_text(made):
        note(line)
    if every is not None:
        echo_plans(output, every, bundle)
    kinds = {refused.kind for refused in made.refused.values()}
    if kinds:
        raise Exit(EXIT_IMPOSSIBLE if "impossible" in kinds else EXIT_UNKNOWN)


@COMMAND.command("diff")
@spec_option
@facts_option
@lock_option
@click.option("--format", "format_", type=Formats, default="text", show_default=True)
def diff_command(spec: Path, facts: tuple[Path, ...], lock_file: Path, format_: str) -> None:
    """Print what `lock --upgrade` would move, by group; nothing is written. Exit status 1: something would move."""
    from gpucheck import stack
    from gpucheck.cli._stack_lock import made_lock
    from gpucheck.stack.lock import read_lock_file
    from gpucheck.stack.text import lock_changes

    def work() -> Any:
        present = read_lock_file(lock_file)
        return present, made_lock(spec, facts, None, common=present.common)

    present, made = guarded(work)
    if isinstance(made, stack.Refusal):
        refuse(made, format_)
    changes = list(lock_changes(present, made))
    if format_ == "json":
        click.echo(as_json({"schema": "gpucheck.stack-diff/1", "lock": str(lock_file), "changes": changes}))
    else:
        click.echo("\n".join(changes) or f"{lock_file}: nothing would move")
    if changes:
        raise Exit(EXIT_MOVES)


@COMMAND.command("plan")
@lock_option
@click.option("--host", help="Name of a host in the lock.")
@click.option("--group", help="Name of a group in the lock.")
@every_option
@bundle_option
@click.option("--format", "format_", type=Formats, default="text", show_default=True)
def plan_command(
    lock_file: Path, host: str | None, group: str | None, every: Path | None, bundle: Path | None, format_: str
) -> None:
    """Print the exact packages, repositories, holds, files, services and the reboot rule."""
    from gpucheck import stack
    from gpucheck.cli._stack_lock import echo_plans, planned
    from gpucheck.stack.text import plan_text

    if sum(choice is not None for choice in (host, group, every)) != 1:
        raise Problem("say either --host NAME, --group GROUP or --every FOLDER")
    if bundle is not None and every is None:
        raise Problem("--bundle serves whole fleets: say --every FOLDER with it")
    if every is not None:
        echo_plans(lock_file, every, bundle)
        return
    found, where = guarded(lambda: planned(lock_file, host=host, group=group))
    if isinstance(found, stack.Refusal):
        refuse(found, format_, where)
    click.echo(as_json(found) if format_ == "json" else plan_text(found))


@COMMAND.command("rules")
@click.option("-o", "--output", type=OutputFile(), help="Write this file instead.")
def rules_command(output: Path | None) -> None:
    """Print the rules that every set satisfies, with their sources, as a Markdown page (docs/stack-rules.md)."""
    from gpucheck.stack.rules.page import rules_page

    write_result(guarded(rules_page), output, mode=SHARED)


COMMAND.add_command(check)
COMMAND.add_command(check_repositories)
