"""A run over several hosts: the rendezvous, the interface that leads there, and the store at which its ranks meet."""

import errno
import fcntl
import socket
import struct
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

ENDPOINT = "--rdzv-endpoint"
SIOCGIFADDR = 0x8915  # <linux/sockios.h>


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """A run over several hosts: their number, the number of this one, and the address of host 0.

    hosted: a launcher keeps the store at the rendezvous already; otherwise rank 0 does. interface: the network
    interface that leads there. run: distinguishes this run from others at the same store.
    """

    count: int
    rank: int
    host: str
    port: int
    hosted: bool = False
    interface: str | None = None
    run: str = "gpucheck"


def nodes_from_options(count: int, rank: int, endpoint: str) -> Nodes:
    """Return the nodes that the options describe. Raises ValueError if they are invalid.

    endpoint: ``HOST:PORT`` or ``[IPV6]:PORT``. On host 0 the port must be free; this is tested by binding it.
    """
    if not 0 <= rank < count:
        raise ValueError(f"--node-rank {rank}: with --nodes {count} the hosts are 0 to {count - 1}.")
    option = f"{ENDPOINT} {endpoint}"
    host, _, port = endpoint.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{option}: expected HOST:PORT of the first host, for example node01:29500.")
    host = host.removeprefix("[").removesuffix("]")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ValueError(f"{option}: {host} has no address here: {error.strerror}.") from error
    if rank == 0:
        _try_port(family, address, option)
    return Nodes(count=count, rank=rank, host=host, port=int(port), interface=_interface_towards(family, address))


def nodes_from_torchrun(environment: Mapping[str, str]) -> Nodes | None:
    """Return the nodes of a run that torchrun started, one process per host; None without torchrun.

    Raises ValueError for several processes per host: gpucheck starts the ranks. Source: torchrun, "Environment
    Variables"; its agent keeps the store that MASTER_ADDR and MASTER_PORT name.
    """
    if "TORCHELASTIC_RUN_ID" not in environment or "GROUP_WORLD_SIZE" not in environment:
        return None
    if environment.get("LOCAL_WORLD_SIZE", "1") != "1":
        raise ValueError(
            "torchrun starts several processes per host. Use --nproc-per-node 1: gpucheck starts the ranks."
        )
    host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Nodes(
        count=int(environment["GROUP_WORLD_SIZE"]),
        rank=int(environment["GROUP_RANK"]),
        host=host,
        port=port,
        hosted=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        interface=_interface_towards(family, address),
        run=f"gpucheck-{environment['TORCHELASTIC_RUN_ID']}-{attempt}",
    )


def _try_port(family: int, address: tuple[object, ...], option: str) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                why = "the port is in use: choose another, the same on every host"
            elif error.errno == errno.EADDRNOTAVAIL:
                why = "this is host 0, and the address is not one of its own"
            else:
                why = f"cannot listen there: {error.strerror}"
            raise ValueError(f"{option}: {why}.") from error


def _interface_towards(family: int, address: tuple[object, ...]) -> str | None:
    """Return the interface of this host with the route to that address; None if unknown.

    Without it gloo takes the address of the host's own name, which is 127.0.1.1 on many hosts.
    """
    if family != socket.AF_INET:
        return None
    with socket.socket(family, socket.SOCK_DGRAM) as towards:
        try:
            towards.connect(address)
        except OSError:  # no route leads there; the connection attempt reports it
            return None
        own = towards.getsockname()[0]
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(towards, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # an interface without an address
                continue
            if socket.inet_ntoa(answer[20:24]) == own:
                return name
    return None


def open_store(distributed: Any, file: Path, nodes: Nodes | None, rank: int, processes: int, seconds: float) -> Any:
    """Return the store at which all ranks meet: a file on one host, which takes no port; a TCP store over several.

    distributed: the module torch.distributed. processes: ranks over all hosts. seconds: the longest wait for a key.
    """
    patience = timedelta(seconds=seconds)
    if nodes is None:
        store = distributed.FileStore(str(file), processes)
        store.set_timeout(patience)
        return store
    serves = rank == 0 and not nodes.hosted
    tcp = distributed.TCPStore(nodes.host, nodes.port, is_master=serves, timeout=patience, wait_for_workers=False)
    return distributed.PrefixStore(nodes.run, tcp)


def leave_store(store: Any, rank: int, processes: int) -> None:
    """Wait, in rank 0 only, until every rank has called this: its process may serve the store."""
    store.add("done", 1)
    while rank == 0 and store.add("done", 0) < processes:
        time.sleep(0.02)
