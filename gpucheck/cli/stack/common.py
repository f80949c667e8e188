"""Shared by the stack commands: errors as one message, the requested host, and results as JSON."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
import msgspec
from click.exceptions import Exit

from gpucheck.cli._shared.common import (
    NVML_SECONDS,
    Problem,
    note,
    open_host,
    recording_option,
    replay_mark,
    simulation_options,
    write_result,
)
from gpucheck.cli._shared.completion import GPU, SYSTEM
from gpucheck.model.finding import EXIT_USAGE
from gpucheck.printable import one_line
from gpucheck.processes.atomic import SHARED

if TYPE_CHECKING:
    from gpucheck.model import Simulation
    from gpucheck.model.facts import Source
    from gpucheck.stack import Refusal, Target
    from gpucheck.stack.plan import Plan

EXIT_IMPOSSIBLE = 2
EXIT_UNKNOWN = 3
MAKE_LOCK = " Create it: gpucheck stack lock --facts FILE, or make plan INVENTORY=..."
F = TypeVar("F", bound=Callable[..., Any])


class _ExistingFile(click.Path):
    """A file that must exist. A missing lock file is reported with the command that creates it."""

    def fail(self, message: str, param: click.Parameter | None = None, ctx: click.Context | None = None) -> NoReturn:
        super().fail(message + (MAKE_LOCK if param and "--lock" in param.opts else ""), param, ctx)


ExistingFile = _ExistingFile(exists=True, dir_okay=False, path_type=Path)
lock_option = click.option(
    "--lock", "lock_file", type=ExistingFile, default=Path("stack.lock.yml"), show_default=True, help="Lock file."
)


def lock_to_read(lock_file: Path | None) -> Path:
    """Return the lock that was named, or stack.lock.yml. Raises a usage error if that is missing."""
    context = click.get_current_context()
    option = next(one for one in context.command.params if one.name == "lock_file")
    return lock_file or Path(str(ExistingFile.convert("stack.lock.yml", option, context)))


# The key, in a context's meta, of the directory whose tables are used.
KNOWLEDGE = "gpucheck.knowledge"


def _use_site_tables(context: click.Context, _parameter: click.Parameter, folder: Path | None) -> None:
    from gpucheck.knowledge.releases import SiteTableError, is_there, own_folder, use_site_tables
    from gpucheck.processes.trust import distrust

    used = context.meta[KNOWLEDGE] = folder or own_folder()
    if folder is None:
        if not is_there(used):
            return
        # Versions and keys of packages come from these files.
        if (reason := distrust(used, own=False)) is not None:
            note(f"tables with rows from {used} are not used: {reason}")
            return
    try:
        names = use_site_tables(used)
    except SiteTableError as error:
        raise Problem(str(error)) from error
    note(f"tables with rows from {used}: {', '.join(names) or 'none'}")


# An option of the group, so that it is handled before any command reads a table.
knowledge_option = click.option(
    "--knowledge-dir",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="GPUCHECK_KNOWLEDGE_DIR",
    expose_value=False,
    callback=_use_site_tables,
    help="Directory of rows that replace or extend the tables. Default: ~/.local/share/gpucheck/knowledge, if there.",
)


def host_options(command: F) -> F:
    """Add the options that describe a host and what it must get. What they omit is read from this host."""
    wanted = click.option(
        "--want",
        "wanted",
        multiple=True,
        metavar="COMPONENT=VERSION",
        help="Require a version, such as cuda=12.9 or 'torch<2.10'. Repeatable.",
    )
    prefer = click.option(
        "--prefer",
        type=click.Choice(["longest-supported", "production", "newest"]),
        help="Driver branch to try first. Default: of the specification, or longest-supported.",
    )
    return recording_option(simulation_options(description_options(wanted(prefer(command)))))


def description_options(command: F) -> F:
    """Add the options that describe a host, and the specification for it."""
    for option in reversed(
        (
            click.option(
                "--gpu",
                "gpus",
                multiple=True,
                metavar="MODEL",
                shell_complete=GPU,
                help="GPU name or PCI id; 8xH200 for eight. Repeatable.",
            ),
            click.option(
                "--os",
                "os_name",
                metavar="SYSTEM",
                shell_complete=SYSTEM,
                help="Operating system, such as ubuntu-22.04 or rocky-9.",
            ),
            click.option(
                "--arch", metavar="ARCH", help="CPU architecture: x86_64 or sbsa (aarch64). Default: from the GPU."
            ),
            click.option("--spec", type=ExistingFile, help="Stack specification for this host."),
        )
    ):
        command = option(command)
    return command


def requested_host(
    gpus: tuple[str, ...], os_name: str | None, arch: str | None, recording: Path | None
) -> "tuple[Target, Simulation | None, str]":
    """Return the host that the options describe, the simulation and the mark of a recording that it was read from.

    What the options omit is read from this host, a simulation or a recording. Raises Problem if the host has no GPU,
    and UnknownInput if something is missing in the tables.
    """
    from gpucheck.stack import target_of
    from gpucheck.stack.components.driver import present_driver
    from gpucheck.stack.facts import OsFacts, facts_of, find_os
    from gpucheck.stack.lock import target_of_facts

    if gpus and os_name:
        if recording or click.get_current_context().params["profile"]:
            raise Problem(f"--gpu and --os cannot be combined with {'--from' if recording else '--simulate'}.")
        return target_of(expanded(gpus), os_name, arch), None, ""
    source = this_host(recording)
    facts, marks = facts_of(source), (source.read("simulation").simulation, replay_mark(source))
    if gpus:
        system = f"{facts.os.id}-{facts.os.version}"
        return target_of(expanded(gpus), system, arch or facts.arch), *marks
    if not facts.gpus:
        raise Problem(
            f"{facts.host}: no NVIDIA GPU on the PCI bus, nothing to resolve. "
            "Describe another host with --gpu MODEL --os SYSTEM, or use --simulate PROFILE.",
            EXIT_UNKNOWN,
        )
    if os_name:
        named = find_os(os_name)
        facts = msgspec.structs.replace(facts, os=OsFacts(id=named.os_id, version=named.version, name=named.name))
    if arch:
        facts = msgspec.structs.replace(facts, arch=arch)
    present, target = present_driver(facts), target_of_facts(facts)[0]
    return target if isinstance(present, str) else msgspec.structs.replace(target, present=present), *marks


def this_host(recording: Path | None) -> "Source":
    """The live host, the simulated machine, or the recording."""
    return open_host(recording, deadline_s=NVML_SECONDS, begin=False)


def planned(lock_file: Path, *, host: str | None = None, group: str | None = None) -> "tuple[Plan | Refusal, str]":
    """Return the plan from a lock file; with conflicts, also file and group of the edited entry."""
    from gpucheck.stack import Refusal
    from gpucheck.stack.lock import read_lock_file
    from gpucheck.stack.plan import plan

    lock = read_lock_file(lock_file)
    found = plan(lock, host=host, group=group)
    name = group or next((name for name, row in lock.groups.items() if host in row.hosts), "")
    return found, f"{lock_file}: {name}" if name and isinstance(found, Refusal) else ""


def spec_of(wanted: tuple[str, ...], prefer: str | None, spec: Path | None = None) -> Any:
    """Return the specification of --spec with the values of --want and --prefer. Raises SpecError."""
    from gpucheck.stack import read_spec, wants

    found = wants(wanted, read_spec(spec) if spec else None)
    return msgspec.structs.replace(found, prefer=prefer) if prefer else found


def guarded(work: Callable[[], Any]) -> Any:
    """Run work. Raises Problem with one message and an exit status for its expected errors."""
    from gpucheck.knowledge import KnowledgeError
    from gpucheck.stack import FactsError, SpecError, UnknownInput
    from gpucheck.stack.lock import LockError
    from gpucheck.stack.plan import NoSuchHost
    from gpucheck.stack.types import NotProvisioned

    try:
        return work()
    except NotProvisioned as error:
        raise Problem(str(error), EXIT_IMPOSSIBLE) from error
    except (UnknownInput, KnowledgeError) as error:
        raise Problem(str(error.args[0]), EXIT_UNKNOWN) from error
    except (SpecError, FactsError, LockError, NoSuchHost) as error:
        raise Problem(str(error.args[0]), EXIT_USAGE) from error


def bundled(work: Callable[[], Any]) -> Any:
    """Run work and turn what can go wrong with a bundle into one message and an exit status."""
    from gpucheck.bundle.contents import BundleDamaged, BundleError
    from gpucheck.processes.gnupg import NotInstalledError

    try:
        return guarded(work)
    except BundleDamaged as error:
        raise Problem(str(error), EXIT_IMPOSSIBLE) from error
    except (BundleError, NotInstalledError) as error:
        raise Problem(str(error), EXIT_UNKNOWN) from error
    except OSError as error:
        raise Problem(f"{error.filename or 'the bundle'}: {error.strerror}", EXIT_UNKNOWN) from error


def refuse(refusal: "Refusal", format_: str, output: Path | None, where: str = "") -> NoReturn:
    """Print the conflicts and exit with their status. where: file and line of the mistake in an edited file."""
    from gpucheck.stack.text import refusal_text

    prefix = f"{one_line(where)}: " if where else ""
    write_result(as_json(refusal) if format_ == "json" else prefix + refusal_text(refusal), output, mode=SHARED)
    raise Exit(EXIT_UNKNOWN if refusal.unknown else EXIT_IMPOSSIBLE)


def expanded(gpus: tuple[str, ...]) -> list[str]:
    """Return one name per GPU: ``8xH200`` becomes eight names."""
    names: list[str] = []
    for text in gpus:
        count, times, name = text.partition("x")
        # 0x15f8 is a PCI id, not a number of GPUs named 15f8.
        if times and count.strip().isdigit() and name.strip() and not text.lower().startswith("0x"):
            if not 0 < int(count) <= 64:
                raise Problem(f"--gpu {text}: a host has 1 to 64 GPUs.")
            names += [name.strip()] * int(count)
        else:
            names.append(text)
    return names


def as_json(value: Any, **more: Any) -> str:
    """Return a value as indented JSON. more: further keys at the end."""
    plain = {**msgspec.to_builtins(value), **more} if more else value
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
