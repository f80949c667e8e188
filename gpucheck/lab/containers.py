"""Containers of the lab: made, started, filled with files, asked things."""

import io
import socket
import struct
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpucheck.lab.model import LABEL, LABEL_STAMP, SUBNET_VARIABLE, HostSpec, Lab
from gpucheck.lab.system import LabError, LabUsageError, failed, say

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container
    from docker.models.networks import Network

# A host boots in seconds, on a machine that is busy with something else in minutes.
START_SECONDS = 600.0
# The engine starts a container again that ends. One that boots does not end so often.
MOST_RESTARTS = 5


@contextmanager
def engine_errors(what: str) -> Iterator[None]:
    """Turn errors of the engine into a LabError that names the step."""
    import docker.errors
    import requests.exceptions

    try:
        yield
    except docker.errors.APIError as error:
        why = str(error.explanation or error)
        hint = "docker ps -a, docker network ls show what is there"
        raise LabError(failed(what, "the Docker engine rejected the request", why, hint)) from error
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        hint = "run this again; it starts the engine"
        raise LabError(failed(what, "the Docker engine went away", str(error), hint)) from error


def lab_containers(client: "DockerClient", lab_name: str) -> dict[str, "Container"]:
    found = client.containers.list(all=True, filters={"label": f"{LABEL}={lab_name}"}, ignore_removed=True)
    return {str(container.name): container for container in found}


def create(
    client: "DockerClient", lab: Lab, host: HostSpec, *, image: str, labels: Mapping[str, str], **options: Any
) -> "Container":
    """Create a container of the lab with a fixed address, not started. Raises LabUsageError when its name is taken."""
    import docker.errors

    name = lab.container(host.name)
    try:
        other = client.containers.get(name)
    except docker.errors.NotFound:
        pass
    else:
        raise LabUsageError(
            f"a container named {name} is there, and no lab made it (image {other.attrs['Config']['Image']})\n"
            f"do: give the lab another name with --name, or remove it: docker rm -f {name}"
        )
    with engine_errors(f"creating the container {name}"):
        return client.containers.create(
            image,
            name=name,
            hostname=host.name,
            labels={LABEL: lab.name, **labels},
            network=lab.name,
            networking_config={lab.name: client.api.create_endpoint_config(ipv4_address=str(lab.ip(host)))},
            detach=True,
            **options,
        )


def kept(container: "Container | None", stamp: str) -> "Container | None":
    """The container if it has this stamp and was filled, else it is removed."""
    if container is None or (container.labels.get(LABEL_STAMP) == stamp and container.status != "created"):
        return container
    say(f"the base of {container.name} has changed: creating it again")
    container.remove(force=True, v=True)
    return None


def start(container: "Container") -> None:
    """Start a container that does not run."""
    if container.status == "running":
        return
    with engine_errors(f"starting the container {container.name}"):
        container.start()


def archive(files: Mapping[str, bytes | Path]) -> bytes:
    """A tar of files and folders by their path in it. bytes become a 0644 file; a Path is packed as it is on disk.

    Owners and times are left out, so that equal content makes equal bytes.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            if isinstance(content, Path):
                tar.add(content, name, filter=_as_root)
            else:
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o644
                tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if "__pycache__" in entry.name:
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = 0
    # Whoever builds with a strict umask still makes hosts that others can read.
    entry.mode |= 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry


def put(container: "Container", folder: str, files: Mapping[str, bytes | Path]) -> None:
    """Copy files into a folder of a container that need not run. The folder must be there."""
    put_archive(container, folder, archive(files))


def put_archive(container: "Container", folder: str, tar: bytes) -> None:
    with engine_errors(f"copying files into {container.name}"):
        if not container.put_archive(folder, tar):
            raise LabError(f"copying files into {container.name}:{folder} failed")


def execute(container: "Container", command: Sequence[str]) -> tuple[int | None, str]:
    """Run a command in a container: its exit status and its output."""
    status, output = container.exec_run(list(command))
    return status, output.decode(errors="replace") if isinstance(output, bytes) else ""


def checked_output(container: "Container", *command: str, what: str) -> str:
    """Run a command in a container and return its output. Raises LabError with the output when it fails."""
    with engine_errors(what):
        status, text = execute(container, command)
    if status:
        raise LabError(failed(what, f"{' '.join(command[:4])} in {container.name} exited {status}", text))
    return text


def host_key(container: "Container") -> str:
    """``ssh-ed25519 AAAA...``"""
    path, what = "/etc/ssh/ssh_host_ed25519_key.pub", f"reading the host key of {container.name}"
    return " ".join(checked_output(container, "cat", path, what=what).split()[:2])


def wait_for(container: "Container", *command: str, what: str) -> str:
    """Repeat a command until it succeeds, and return its output. Raises LabError with the container's final output."""
    begun, before = time.monotonic(), container.attrs.get("RestartCount", 0)
    while time.monotonic() < begun + START_SECONDS:
        with engine_errors(what):
            container.reload()
            if container.status == "running":
                status, text = execute(container, command)
                if status == 0:
                    return text
            restarts = container.attrs.get("RestartCount", 0) - before
        if container.status in ("exited", "dead") or restarts > MOST_RESTARTS:
            break
        time.sleep(0.2)
    last = container.logs(tail=10).decode(errors="replace")
    hint = (
        f"docker logs {container.name} has the rest; a container of this kind that stops without a word often lacks "
        "inotify instances (sysctl fs.inotify.max_user_instances)"
    )
    seconds = time.monotonic() - begun
    raise LabError(failed(what, f"{container.name} is {container.status} after {seconds:.0f} s", last, hint))


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
    found = client.networks.list(filters={"label": f"{LABEL}={lab_name}"})
    return found[0] if found else None


@engine_errors("looking at the engine's networks")
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


@engine_errors("making the lab's network")
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
