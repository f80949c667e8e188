"""Manage the local test lab"""

import json
from pathlib import Path

import click

from gpucheck.cli._shared.common import note, output_options, write_result
from gpucheck.lab.model import DEFAULT_NAME, DEFAULT_SUBNET, SUBNET_VARIABLE

NAME = click.option(
    "--name", default=DEFAULT_NAME, show_default=True, metavar="NAME", help="Name of the lab, prefix of its containers."
)
SUBNET = click.option(
    "--subnet",
    envvar=SUBNET_VARIABLE,
    default=DEFAULT_SUBNET,
    show_default=True,
    metavar="CIDR",
    help=f"IPv4 subnet of the lab network. Environment: {SUBNET_VARIABLE}.",
)


@click.group()
def COMMAND() -> None:  # noqa: N802 - the name the command walk looks for
    """Manage the local test lab.

    Two hosts and a package mirror in containers, with SIMULATED GPUs.
    """


@COMMAND.command()
@NAME
@SUBNET
@click.option("--light", type=int, metavar="N", help="Start N light hosts (no systemd, copies of the first) instead.")
@click.option(
    "--profile",
    metavar="NAME",
    help="Simulated machine: a name from gpucheck profiles, or FILE.yml. Default: p100-pcie-x2. Requires --light.",
)
@click.option("--bare-metal", is_flag=True, help="Simulate bare metal: RDMA cards, ACS enabled, mounts allowed.")
def up(name: str, subnet: str, light: int | None, profile: str | None, *, bare_metal: bool) -> None:
    """Start the lab and print the path of its inventory."""
    from gpucheck.lab.lifecycle import up as bring_up
    from gpucheck.lab.lifecycle import up_light
    from gpucheck.lab.model import BARE_METAL_HOSTS, HOSTS, make_lab

    if profile is not None and light is None:
        raise click.UsageError("--profile requires --light: the two hosts have fixed profiles.")
    if bare_metal and light is not None:
        raise click.UsageError("--bare-metal cannot be combined with --light: light hosts are not built for it.")
    lab = make_lab(name, subnet)
    hosts = BARE_METAL_HOSTS if bare_metal else HOSTS
    click.echo(bring_up(lab, hosts) if light is None else up_light(lab, light, profile))


@COMMAND.command()
@NAME
@click.option("--images", is_flag=True, help="Also remove the images. The next lab up rebuilds them.")
def down(name: str, images: bool) -> None:
    """Remove containers, network and files of the lab."""
    from gpucheck.lab.lifecycle import down as take_down
    from gpucheck.lab.model import checked_name, checkout

    removed = take_down(checked_name(name), checkout(), images=images)
    for line in removed:
        note(f"removed {line}")
    if not removed:
        note(f"the lab {name} is not there: nothing to remove")


@COMMAND.command()
@NAME
@output_options("text", "json")
def status(name: str, format_: str, output: Path | None) -> None:
    """Show the state of the lab."""
    from gpucheck.lab.lifecycle import status as look
    from gpucheck.lab.model import checked_name, checkout

    seen = look(checked_name(name), checkout())
    if format_ == "json":
        write_result(json.dumps(seen, indent=2), output)
        return
    lines = [f"lab {name}: {seen['state']} (SIMULATED hardware)"]
    lines += [
        f"  {row['host']:<9} {row['state']:<10} {row['address'] or '-':<15} {row['name']}" for row in seen["containers"]
    ]
    lines += [] if seen["engine"] else ["  the Docker engine does not run; gpucheck lab up starts it"]
    lines += [f"  inventory {Path(seen['inventory'])}"] if seen["inventory"] else []
    write_result("\n".join(lines), output)
