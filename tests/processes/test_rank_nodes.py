"""The rendezvous of several hosts is validated before any rank starts."""

import socket

import pytest

from gpucheck.processes.ranks.nodes import nodes_from_options, nodes_from_torchrun

NO_ENDPOINTS = ("", ":1", "node", "node:", "node:x", "node:0", "node:65536", "node:\u0663")


@pytest.mark.parametrize(
    ("count", "rank", "endpoint", "words"),
    [
        *((2, 0, text, "--rdzv-endpoint .*: expected HOST:PORT") for text in NO_ENDPOINTS),
        (2, 2, "127.0.0.1:29500", "the hosts are 0 to 1"),
        (2, 1, "no-such-host.invalid:29500", "has no address here"),
        (2, 0, "192.0.2.1:29500", "not one of its own"),
    ],
)
def test_invalid_rendezvous_is_rejected(count, rank, endpoint, words):
    with pytest.raises(ValueError, match=words):
        nodes_from_options(count, rank, endpoint)


def test_port_in_use_is_rejected_on_the_listening_host():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"

        with pytest.raises(ValueError, match="the port is in use: choose another"):
            nodes_from_options(2, 0, place)
        assert nodes_from_options(2, 1, place).rank == 1, "the other hosts are to connect to it"


def test_interface_leads_to_the_rendezvous():
    """IPv6 leaves the interface to the library."""
    v6 = nodes_from_options(2, 1, "[::1]:29500")

    assert nodes_from_options(2, 1, "127.0.0.1:29500").interface == "lo"
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
    nodes = nodes_from_torchrun(environment)

    assert nodes is not None
    assert (nodes.count, nodes.rank, nodes.port, nodes.hosted) == (2, 1, 29400, True)
    assert nodes_from_torchrun({}) is None
    with pytest.raises(ValueError, match="--nproc-per-node 1"):
        nodes_from_torchrun(environment | {"LOCAL_WORLD_SIZE": "2"})
