"""The lab's own network: a free subnet, with a clear message if it is taken."""

import socket
import struct
from collections.abc import Iterable
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING

from gpucheck.lab.model import LABEL, SUBNET_VARIABLE, Lab
from gpucheck.lab.system import LabUsageError

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.networks import Network

Claim = tuple[IPv4Network, str]
CANDIDATES = tuple(IPv4Network(f"10.213.{third}.0/24") for third in range(41, 60))


def routes(table: str) -> list[Claim]:
    """The subnets in a /proc/net/route, with the interface that has each; without the default route."""
    found = []
    for line in table.splitlines()[1:]:
        interface, destination, _gateway, _flags, _ref, _use, _metric, mask = line.split()[:8]
        if int(mask, 16):
            words = (socket.inet_ntoa(struct.pack("<L", int(value, 16))) for value in (destination, mask))
            found.append((IPv4Network("/".join(words)), f"this machine's route through {interface}"))
    return found


def docker_claims(client: "DockerClient") -> list[Claim]:
    """The subnets of the engine's networks, with the name of each."""
    found = []
    for network in client.networks.list():
        pools = (network.attrs.get("IPAM") or {}).get("Config") or []
        subnets = [pool["Subnet"] for pool in pools if ":" not in pool.get("Subnet", ":")]
        found += [(IPv4Network(subnet, strict=False), f"the Docker network {network.name}") for subnet in subnets]
    return found


def refuse_taken(subnet: IPv4Network, claims: Iterable[Claim]) -> None:
    """Raise LabUsageError if a part of the subnet is taken: by what, and which one is free."""
    claims = tuple(claims)
    for taken, owner in claims:
        if not taken.overlaps(subnet):
            continue
        free = next((c for c in CANDIDATES if not any(c.overlaps(other) for other, _ in claims)), None)
        example = str(free) if free else "a free one"
        raise LabUsageError(
            f"the lab's subnet {subnet} is taken: {owner} has {taken}\n"
            f"do: choose another with --subnet {example} (or {SUBNET_VARIABLE}={example})"
        )


def find_network(client: "DockerClient", lab_name: str) -> "Network | None":
    """The lab's network, None where there is none."""
    found = client.networks.list(filters={"label": f"{LABEL}={lab_name}"})
    return found[0] if found else None


def check_network(client: "DockerClient", lab: Lab) -> "Network | None":
    """The lab's network, None where it can be made. Raises LabUsageError when its subnet or its name is taken."""
    network = find_network(client, lab.name)
    if network is not None:
        subnet = IPv4Network(network.attrs["IPAM"]["Config"][0]["Subnet"])
        if subnet != lab.subnet:
            raise LabUsageError(
                f"the lab {lab.name} is up on {subnet}, not on {lab.subnet}\n"
                f"do: gpucheck lab down --name {lab.name}, or keep its subnet with --subnet {subnet}"
            )
        return network
    refuse_taken(lab.subnet, [*docker_claims(client), *routes(Path("/proc/net/route").read_text(encoding="ascii"))])
    if client.networks.list(names=[f"^{lab.name}$"]):
        raise LabUsageError(
            f"a Docker network named {lab.name} is there, and no lab made it\n"
            f"do: give the lab another name with --name, or remove it: docker network rm {lab.name}"
        )
    return None


def ensure_network(client: "DockerClient", lab: Lab) -> "Network":
    """The lab's network, made when it is not there. Raises LabUsageError as check_network does."""
    from docker.types import IPAMConfig, IPAMPool

    network = check_network(client, lab)
    if network is not None:
        return network
    pool = IPAMPool(subnet=str(lab.subnet), gateway=str(lab.subnet[1]))
    return client.networks.create(
        lab.name, driver="bridge", ipam=IPAMConfig(pool_configs=[pool]), labels={LABEL: lab.name}, check_duplicate=True
    )
