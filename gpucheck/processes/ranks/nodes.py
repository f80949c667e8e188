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

SIOCGIFADDR = 0x8915  # <linux/sockios.h>
REFUSED = {
    errno.EADDRINUSE: "the port is in use: choose another, the same on every host",
    errno.EADDRNOTAVAIL: "this is host 0, and the address is not one of its own",
}


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


def nodes_from(environment: Mapping[str, str]) -> Nodes | None:
    """Return the nodes that GROUP_WORLD_SIZE, GROUP_RANK, MASTER_ADDR and MASTER_PORT name; None without the first.

    Raises ValueError if they are invalid, and for several processes per host: gpucheck starts the ranks. On host 0 the
    port must be free; this is tested by binding it. Source of the names: torchrun, "Environment Variables". Its agent
    may keep the store at that address already.
    """
    if "GROUP_WORLD_SIZE" not in environment:
        return None
    if environment.get("LOCAL_WORLD_SIZE", "1") != "1":
        raise ValueError(
            "torchrun starts several processes per host. Use --nproc-per-node 1: gpucheck starts the ranks."
        )
    count, rank, port = (_number(environment, name) for name in ("GROUP_WORLD_SIZE", "GROUP_RANK", "MASTER_PORT"))
    host = environment.get("MASTER_ADDR", "")
    if rank >= count:
        raise ValueError(f"GROUP_RANK {rank}: with GROUP_WORLD_SIZE {count} the hosts are 0 to {count - 1}.")
    if not host or not 0 < port < 1 << 16:
        raise ValueError("MASTER_ADDR and MASTER_PORT: set an address of host 0 and a free port, 1 to 65535.")
    place = f"MASTER_ADDR {host}, MASTER_PORT {port}"
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{place}: {host} has no address here: {getattr(error, 'strerror', error)}.") from error
    hosted = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if rank == 0 and not hosted:
        _try_port(family, address, place)
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Nodes(
        count=count,
        rank=rank,
        host=host,
        port=port,
        hosted=hosted,
        interface=_interface_towards(family, address),
        run=f"gpucheck-{environment.get('TORCHELASTIC_RUN_ID', 'none')}-{attempt}",
    )


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(f"{name} {text!r}: expected a number, as torchrun sets it on every host.")
    return int(text)


def _try_port(family: int, address: tuple[object, ...], place: str) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            why = REFUSED.get(error.errno or 0, f"cannot listen there: {error.strerror}")
            raise ValueError(f"{place}: {why}.") from error


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
