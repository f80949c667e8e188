"""A run over several hosts: where they meet, over which interface, and what a launcher such as torchrun says of it."""

import socket
from collections.abc import Mapping

from gpucheck.processes.network import interface_towards, meeting_place
from gpucheck.train.spec import Nodes


def meeting(count: int, rank: int, rendezvous: str) -> Nodes:
    """The nodes of a run that was described by options. Raises ValueError with what is wrong with them.

    On the first host the port must be free; that is tried.
    """
    if not 0 <= rank < count:
        raise ValueError(f"--node-rank {rank}: with --nodes {count} the hosts are 0 to {count - 1}.")
    place = meeting_place("--rendezvous", rendezvous, listens=rank == 0)
    return Nodes(count=count, rank=rank, host=place.host, port=place.port, interface=place.interface)


def torchrun(environment: Mapping[str, str]) -> Nodes | None:
    """The nodes of a run that torchrun started, one process a host; None where it did not.

    Raises ValueError where it started several a host: the ranks are ours to start. Source: torchrun, "Environment
    Variables"; its agent keeps the store that MASTER_ADDR and MASTER_PORT name.
    """
    if "TORCHELASTIC_RUN_ID" not in environment or "GROUP_WORLD_SIZE" not in environment:
        return None
    if environment.get("LOCAL_WORLD_SIZE", "1") != "1":
        raise ValueError("torchrun starts several processes a host: use --nproc-per-node 1, gpucheck starts the ranks.")
    host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Nodes(
        count=int(environment["GROUP_WORLD_SIZE"]),
        rank=int(environment["GROUP_RANK"]),
        host=host,
        port=port,
        hosted=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        interface=interface_towards(family, address),
        run=f"gpucheck-{environment['TORCHELASTIC_RUN_ID']}-{attempt}",
    )
