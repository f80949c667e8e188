"""What the stack commands share: errors as one message, the host that is asked about, and answers as JSON."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click
import msgspec
from click.exceptions import Exit

from gpucheck.cli._common import Problem, note, open_host, recording_option, replay_mark, simulation_options
from gpucheck.model.verdict import EXIT_USAGE
from gpucheck.printable import one_line

if TYPE_CHECKING:
    from gpucheck.model import Host, Simulation
    from gpucheck.stack import Refusal, Target

EXIT_IMPOSSIBLE = 2
EXIT_UNKNOWN = 3
Formats = click.Choice(["text", "json"])
ExistingFile = click.Path(exists=True, dir_okay=False, path_type=Path)
NVML_SECONDS = 20.0
F = TypeVar("F", bound=Callable[..., Any])


class Asked(NamedTuple):
    """The kind of host a question is about. simulation: set when it was read from a simulated machine.

    mark: the line that says that it was read from a recording.
    """

    target: "Target"
    simulation: "Simulation | None" = None
    mark: str = ""


every_option = click.option(
    "--every",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write HOST.json for every host of the lock: its plan, or the conflicts that it is refused for.",
)
bundle_option = click.option(
    "--bundle",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="With --every: a bundle that is to be the only source, as gpucheck bundle verify found it good.",
)


def _use_site_tables(_context: click.Context, _parameter: click.Parameter, folder: Path | None) -> None:
    from gpucheck.knowledge.site import SiteTableError, use_site_tables

    if folder is None:
        return
    try:
        names = use_site_tables(folder)
    except SiteTableError as error:
        raise Problem(str(error)) from error
    note(f"tables with rows of the site: {', '.join(str(folder / name) for name in names) or 'none'}")


# Of a group: before any of its commands reads a table.
knowledge_option = click.option(
    "--knowledge-dir",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="GPUCHECK_KNOWLEDGE_DIR",
    expose_value=False,
    callback=_use_site_tables,
    help="Directory with rows that replace or extend the tables.",
)


def kind_options(command: F) -> F:
    """The options that say which kind of host is meant; this host is read for what they leave open."""
    for option in reversed(
        (
            click.option("--gpu", "gpus", multiple=True, metavar="MODEL", help="Name or PCI id; 8xH200 for eight."),
            click.option("--os", "os_name", metavar="SYSTEM", help="For example ubuntu-22.04, rocky-9, debian-13."),
            click.option("--arch", metavar="ARCH", help="x86_64 or sbsa (aarch64). Default: that of the GPU."),
            click.option(
                "--nvswitches",
                type=click.IntRange(min=0),
                help="NVSwitch devices on the PCI bus. Default: as the GPUs suggest.",
            ),
            click.option(
                "--want", "wanted", multiple=True, metavar="PART=VERSION", help="For example cuda=12.9 or 'torch<2.10'."
            ),
            click.option(
                "--prefer",
                type=click.Choice(["longest-supported", "production", "newest"]),
                default="longest-supported",
                show_default=True,
                help="Which driver branch to try first.",
            ),
        )
    ):
        command = option(command)
    return recording_option(simulation_options(command))


def asked_kind(
    gpus: tuple[str, ...],
    os_name: str | None,
    arch: str | None,
    nvswitches: int | None,
    profile: str | None,
    faults: tuple[str, ...],
    recording: Path | None = None,
) -> Asked:
    """The kind of host that the options name; what they leave open is read from this host, or another that is named.

    Raises Problem where this host shows no GPU, and UnknownInput where the tables do not know something.
    """
    from gpucheck.stack import target_of

    if gpus and os_name:
        if profile or faults or recording:
            unread = "--from" if recording else "--simulate"
            raise Problem(f"--gpu and --os already say it all, so {unread} would go unread. Take one side away.")
        return Asked(target_of(expanded(gpus), os_name, arch, nvswitches=nvswitches))
    host = this_host(profile, faults) if recording is None else this_host(profile, faults, recording)
    return _of_this_host(host, gpus, os_name, arch, nvswitches)


def this_host(profile: str | None, faults: tuple[str, ...], recording: Path | None = None) -> "Host":
    """The live host, the simulated machine, or the recording."""
    return open_host(profile, faults, recording, deadline_s=NVML_SECONDS, begin=False)


def _of_this_host(
    host: "Host", gpus: tuple[str, ...], os_name: str | None, arch: str | None, nvswitches: int | None
) -> Asked:
    from gpucheck.stack import target_of
    from gpucheck.stack.facts import OsFacts, facts_of
    from gpucheck.stack.lock import target_of_facts
    from gpucheck.stack.systems import find_os

    facts, told = facts_of(host), (host.simulation(), replay_mark(host))
    if gpus:
        system = os_name or f"{facts.os.id}-{facts.os.version}"
        return Asked(target_of(expanded(gpus), system, arch or facts.arch, nvswitches=nvswitches), *told)
    if not facts.gpus:
        raise Problem(
            f"{facts.host}: no NVIDIA GPU on its PCI bus, so there is nothing to resolve for. "
            "Name what is meant: --gpu MODEL --os SYSTEM, or --simulate PROFILE.",
            EXIT_UNKNOWN,
        )
    if os_name:
        named = find_os(os_name)
        facts = msgspec.structs.replace(facts, os=OsFacts(id=named.os_id, version=named.version, name=named.name))
    if arch:
        facts = msgspec.structs.replace(facts, arch=arch)
    if nvswitches is not None:
        facts = msgspec.structs.replace(facts, nvswitches=nvswitches)
    return Asked(target_of_facts(facts)[0], *told)


def spec_of(wanted: tuple[str, ...], prefer: str) -> Any:
    """The specification of --want and --prefer. Raises SpecError."""
    from gpucheck.stack import wants

    return msgspec.structs.replace(wants(wanted), prefer=prefer)


def guarded(work: Callable[[], Any]) -> Any:
    """Run work and turn what can go wrong into one message and an exit status."""
    from gpucheck.knowledge import KnowledgeError
    from gpucheck.stack import FactsError, SpecError, UnknownInput
    from gpucheck.stack.lock import LockError
    from gpucheck.stack.plan import NoSuchHost

    try:
        return work()
    except (UnknownInput, KnowledgeError) as error:
        raise Problem(str(error.args[0]), EXIT_UNKNOWN) from error
    except (SpecError, FactsError, LockError, NoSuchHost) as error:
        raise Problem(str(error.args[0]), EXIT_USAGE) from error


def refuse(refusal: "Refusal", format_: str, where: str = "") -> NoReturn:
    """Print a refusal and leave with its status. where: the place of the mistake, for a file that was edited."""
    from gpucheck.stack.text import refusal_text

    prefix = f"{one_line(where)}: " if where else ""
    click.echo(as_json(refusal) if format_ == "json" else prefix + refusal_text(refusal))
    raise Exit(EXIT_UNKNOWN if refusal.unknown else EXIT_IMPOSSIBLE)


def expanded(gpus: tuple[str, ...]) -> list[str]:
    """``8xH200`` as eight names."""
    names: list[str] = []
    for text in gpus:
        count, times, name = text.partition("x")
        # 0x15f8 is a PCI id, and no number of GPUs called 15f8.
        if times and count.strip().isdigit() and name.strip() and not text.lower().startswith("0x"):
            if not 0 < int(count) <= 64:
                raise Problem(f"--gpu {text}: a host has 1 to 64 GPUs")
            names += [name.strip()] * int(count)
        else:
            names.append(text)
    return names


def as_json(value: Any, **more: Any) -> str:
    """A value as indented JSON. more: further keys at the end."""
    plain = {**msgspec.to_builtins(value), **more} if more else value
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()


def marked(text: str, simulation: "Simulation | None") -> str:
    """The text, with the mark that no simulated answer may lack."""
    return f"SIMULATED hardware: {one_line(simulation.profile)}\n{text}" if simulation else text
