"""The rendezvous of several hosts is validated before any rank starts."""

import socket

import pytest

from gpucheck.processes.ranks.nodes import Nodes, nodes_from


def variables(count: object, rank: object, host: object, port: object) -> dict[str, str]:
    names = ("GROUP_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
    return dict(zip(names, map(str, (count, rank, host, port)), strict=True))


def nodes(count: object, rank: object, host: str, port: object) -> Nodes:
    found = nodes_from(variables(count, rank, host, port))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("values", "words"),
    [
        *(((2, 0, "node", port), "MASTER_PORT") for port in ("", "x", "0", "65536", "\u0663", "-1")),
        ((2, 0, "", 29500), "MASTER_ADDR and MASTER_PORT: set"),
        ((2, "", "node", 29500), "GROUP_RANK '': expected a number"),
        (("two", 0, "node", 29500), "GROUP_WORLD_SIZE 'two': expected a number"),
        ((2, 2, "127.0.0.1", 29500), "the hosts are 0 to 1"),
        ((2, 1, "no-such-host.invalid", 29500), "has no address here"),
        ((2, 0, "192.0.2.1", 29500), "not one of its own"),
    ],
)
def test_invalid_rendezvous_is_rejected(values, words):
    with pytest.raises(ValueError, match=words):
        nodes(*values)


def test_port_in_use_is_rejected_on_the_listening_host():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(ValueError, match="the port is in use: choose another"):
            nodes(2, 0, "127.0.0.1", port)
        assert nodes(2, 1, "127.0.0.1", port).rank == 1, "the other hosts are to connect to it"


def test_interface_leads_to_the_rendezvous():
    """IPv6 leaves the interface to the library."""
    v6 = nodes(2, 1, "::1", 29500)

    assert nodes(2, 1, "127.0.0.1", 29500).interface == "lo"
    assert (v6.host, v6.port, v6.interface) == ("::1", 29500, None)


def test_torchrun_environment_gives_the_nodes():
    environment = {
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29400",
    }
    found = nodes_from(environment)

    assert found is not None
    assert (found.count, found.rank, found.port, found.hosted) == (2, 1, 29400, True)
    assert nodes_from({}) is None
    with pytest.raises(ValueError, match="--nproc-per-node 1"):
        nodes_from(environment | {"LOCAL_WORLD_SIZE": "2"})
