"""Two lab hosts and a package mirror in containers: up, down, status."""

import json
from pathlib import Path

import click

from gpucheck.cli._common import note
from gpucheck.lab.model import DEFAULT_NAME, DEFAULT_SUBNET, SUBNET_VARIABLE

NAME = click.option(
    "--name", default=DEFAULT_NAME, show_default=True, help="The lab, and the start of its containers' names."
)


@click.group()
def COMMAND() -> None:  # noqa: N802 - the name the command walk looks for
    """Two lab hosts and a package mirror in containers, with SIMULATED GPUs."""


@COMMAND.command()
@NAME
@click.option(
    "--subnet",
    envvar=SUBNET_VARIABLE,
    default=DEFAULT_SUBNET,
    show_default=True,
    help=f"IPv4 subnet of the lab's network. Environment: {SUBNET_VARIABLE}.",
)
@click.option(
    "--light",
    type=int,
    metavar="N",
    help="Instead of the two hosts, N light ones without systemd: the first is bare, the others are copies of it as it "
    "is then. For measuring many.",
)
@click.option(
    "--profile",
    metavar="NAME",
    help="With --light, the machine that they simulate: a profile by name or file (gpucheck profiles lists them). "
    "Default: p100-pcie-x2.",
)
@click.option(
    "--bare-metal",
    is_flag=True,
    help="The two hosts appear as bare metal, with RDMA cards and with ACS on: for what is refused in containers. "
    "They may mount, which containers otherwise may not.",
)
def up(name: str, subnet: str, light: int | None, profile: str | None, *, bare_metal: bool) -> None:
    """Bring the lab up and print the path of its inventory. Does nothing when it is up."""
    from gpucheck.lab.lifecycle import up as bring_up
    from gpucheck.lab.lifecycle import up_light
    from gpucheck.lab.model import BARE_METAL_HOSTS, HOSTS, make_lab

    if profile is not None and light is None:
        raise click.UsageError("--profile goes with --light: the two hosts have machines of their own.")
    if bare_metal and light is not None:
        raise click.UsageError("--bare-metal goes with the two hosts: light ones share what they are made from.")
    lab = make_lab(name, subnet)
    hosts = BARE_METAL_HOSTS if bare_metal else HOSTS
    click.echo(bring_up(lab, hosts) if light is None else up_light(lab, light, profile))


@COMMAND.command("real-packages")
@NAME
@click.option("--subnet", envvar=SUBNET_VARIABLE, default=DEFAULT_SUBNET, show_default=True, help="As for up.")
def real_packages(name: str, subnet: str) -> None:
    """Bring up one Debian 12 host for real packages of Debian's archive, and print the path of its inventory.

    Nothing on it stands in for a package, for DKMS or for NVML; its GPUs are SIMULATED, so no driver gets loaded.
    """
    from gpucheck.lab.model import make_lab
    from gpucheck.lab.real_packages import up as bring_up

    click.echo(bring_up(make_lab(name, subnet)))


@COMMAND.command()
@NAME
@click.option("--images", is_flag=True, help="Remove the images too: the next `lab up` then starts from nothing.")
def down(name: str, images: bool) -> None:
    """Remove the lab's containers, network and files; nothing that is not the lab's."""
    from gpucheck.lab.lifecycle import down as take_down
    from gpucheck.lab.model import checked_name, checkout

    removed = take_down(checked_name(name), checkout(), images=images)
    for line in removed:
        note(f"removed {line}")
    if not removed:
        note(f"the lab {name} is not there: nothing to remove")


@COMMAND.command()
@NAME
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
def status(name: str, format_: str) -> None:
    """Say which parts of the lab run."""
    from gpucheck.lab.lifecycle import status as look
    from gpucheck.lab.model import checked_name, checkout

    seen = look(checked_name(name), checkout())
    if format_ == "json":
        click.echo(json.dumps(seen, indent=2))
        return
    click.echo(f"lab {name}: {seen['state']} (SIMULATED hardware)")
    for row in seen["containers"]:
        click.echo(f"  {row['host']:<9} {row['state']:<10} {row['address'] or '-':<15} {row['name']}")
    if not seen["engine"]:
        click.echo("  the Docker engine does not run; gpucheck lab up starts it")
    if seen["inventory"]:
        click.echo(f"  inventory {Path(seen['inventory'])}")
