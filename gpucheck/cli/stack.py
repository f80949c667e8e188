"""gpucheck stack: which driver, CUDA, cuDNN, NCCL and frameworks belong on which host, and why."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from gpucheck.cli._common import Problem, write_result
from gpucheck.model.verdict import EXIT_USAGE

SHORT_HELP = "One compatible set of driver, CUDA, cuDNN, NCCL and frameworks, or the reason why not."
EXIT_IMPOSSIBLE = 2
EXIT_UNKNOWN = 3
Formats = click.Choice(["text", "json"])
ExistingFile = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("stack", short_help=SHORT_HELP)
def COMMAND() -> None:  # noqa: N802 - the name every command module has
    """Resolve, lock and plan the NVIDIA stack. Nothing here changes a machine.

    Exit status: 0 a set exists, 2 impossible, 3 a GPU or system is not known, 64 wrong usage.
    """


@COMMAND.command("resolve")
@click.option("--gpu", "gpus", multiple=True, required=True, metavar="MODEL", help="Name or PCI id; 8xH200 for eight.")
@click.option("--os", "os_name", required=True, metavar="SYSTEM", help="For example ubuntu-22.04, rocky-9, debian-13.")
@click.option("--arch", metavar="ARCH", help="x86_64 or sbsa (aarch64). Default: that of the GPU.")
@click.option("--want", "wanted", multiple=True, metavar="PART=VERSION", help="For example cuda=12.9 or 'torch<2.10'.")
@click.option(
    "--nvswitches", type=click.IntRange(min=0), help="NVSwitch devices on the PCI bus. Default: as the GPUs suggest."
)
@click.option(
    "--prefer",
    type=click.Choice(["longest-supported", "production", "newest"]),
    default="longest-supported",
    show_default=True,
    help="Which driver branch to try first.",
)
@click.option("--format", "format_", type=Formats, default="text", show_default=True)
def resolve_command(
    gpus: tuple[str, ...],
    os_name: str,
    arch: str | None,
    wanted: tuple[str, ...],
    nvswitches: int | None,
    prefer: str,
    format_: str,
) -> None:
    """Print the one set that belongs on a kind of host."""
    from gpucheck import stack
    from gpucheck.stack.text import refusal_text, stack_text

    def work() -> Any:
        wish = msgspec.structs.replace(stack.wants(wanted), prefer=prefer)
        return stack.resolve(_expanded(gpus), os_name, arch, wish, nvswitches=nvswitches)

    found = _guarded(work)
    if isinstance(found, stack.Refusal):
        click.echo(_json(found) if format_ == "json" else refusal_text(found))
        raise SystemExit(EXIT_IMPOSSIBLE)
    click.echo(_json(found) if format_ == "json" else stack_text(found))


@COMMAND.command("lock")
@click.option("--wish", type=ExistingFile, default=Path("stack.yml"), show_default=True, help="The site's wish.")
@click.option("--facts", multiple=True, required=True, type=ExistingFile, help="Facts of hosts (JSON). Repeatable.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("stack.lock.yml"), show_default=True
)
@click.option("--upgrade", is_flag=True, help="Choose anew also where the present lock still holds.")
def lock_command(wish: Path, facts: tuple[Path, ...], output: Path, upgrade: bool) -> None:
    """Resolve every group of hosts into a lock file; an unchanged lock is not touched.

    A host that cannot be served is refused by itself and named on stderr: the lock is written for the others, and the
    exit status is 2 (impossible) or 3 (only unknown GPUs or systems).
    """
    from gpucheck import stack
    from gpucheck.stack.lock import lock, read_lock, write_lock
    from gpucheck.stack.text import lock_changes, refused_text

    def work() -> Any:
        hosts = [host for path in facts for host in stack.read_facts(path.read_bytes(), str(path))]
        # A damaged lock is replaced only when that is asked for: it may hold what the hosts run today.
        previous = (
            read_lock(output.read_text(encoding="utf-8"), str(output)) if output.exists() and not upgrade else None
        )
        return previous, lock(stack.read_wish(wish), hosts, previous)

    previous, made = _guarded(work)
    text = write_lock(made)
    if output.exists() and output.read_text(encoding="utf-8") == text:
        click.echo(f"{output}: unchanged", err=True)
    else:
        write_result(text, output)
        for line in lock_changes(previous, made):
            click.echo(f"{output}: {line}", err=True)
    for line in refused_text(made):
        click.echo(line, err=True)
    kinds = {refused.kind for refused in made.refused.values()}
    if kinds:
        raise SystemExit(EXIT_IMPOSSIBLE if "impossible" in kinds else EXIT_UNKNOWN)


@COMMAND.command("plan")
@click.option("--lock", "lock_file", type=ExistingFile, default=Path("stack.lock.yml"), show_default=True)
@click.option("--host", help="Name of a host in the lock.")
@click.option("--group", help="Name of a group in the lock.")
@click.option("--format", "format_", type=Formats, default="text", show_default=True)
def plan_command(lock_file: Path, host: str | None, group: str | None, format_: str) -> None:
    """Print the exact packages, repositories, holds, files, services and the reboot rule."""
    from gpucheck import stack
    from gpucheck.stack.lock import read_lock
    from gpucheck.stack.plan import plan
    from gpucheck.stack.text import plan_text, refusal_text

    if (host is None) == (group is None):
        raise Problem("say either --host NAME or --group GROUP")
    found = _guarded(
        lambda: plan(read_lock(lock_file.read_text(encoding="utf-8"), str(lock_file)), host=host, group=group)
    )
    if isinstance(found, stack.Refusal):
        click.echo(_json(found) if format_ == "json" else refusal_text(found))
        raise SystemExit(EXIT_UNKNOWN if found.unknown else EXIT_IMPOSSIBLE)
    click.echo(_json(found) if format_ == "json" else plan_text(found))


def _guarded(work: Callable[[], Any]) -> Any:
    """Run work and turn what can go wrong into one message and an exit status."""
    from gpucheck.knowledge import KnowledgeError
    from gpucheck.stack import FactsError, UnknownInput, WishError
    from gpucheck.stack.lock import LockError
    from gpucheck.stack.plan import NoSuchHost

    try:
        return work()
    except UnknownInput as error:
        raise Problem(str(error), EXIT_UNKNOWN) from error
    except (WishError, FactsError, LockError, KnowledgeError, NoSuchHost) as error:
        raise Problem(str(error.args[0]), EXIT_USAGE) from error


def _expanded(gpus: tuple[str, ...]) -> list[str]:
    """``8xH200`` as eight names."""
    names: list[str] = []
    for text in gpus:
        count, times, name = text.partition("x")
        if times and count.strip().isdigit() and name.strip():
            if not 0 < int(count) <= 64:
                raise Problem(f"--gpu {text}: a host has 1 to 64 GPUs")
            names += [name.strip()] * int(count)
        else:
            names.append(text)
    return names


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
