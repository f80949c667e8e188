"""Where hosts meet: an address that can be, and the interface that leads there."""

import socket

import pytest

from gpucheck.processes.environment import rank_environment
from gpucheck.processes.network import interface_towards, meeting_place


def test_the_loopback_address_is_reached_by_the_loopback_interface():
    assert interface_towards(socket.AF_INET, ("127.0.0.1", 1)) == "lo"


def test_ipv6_leaves_the_interface_to_the_library():
    assert interface_towards(socket.AF_INET6, ("::1", 1, 0, 0)) is None


def test_an_ipv6_address_stands_in_brackets():
    place = meeting_place("--master", "[::1]:29500", listens=False)

    assert (place.host, place.port) == ("::1", 29500)


@pytest.mark.parametrize("text", ["", ":1", "node", "node:", "node:x", "node:0", "node:65536", "node:\u0663"])
def test_what_is_no_place_names_the_option_and_the_form(text):
    with pytest.raises(ValueError, match=r"--master .*: expected HOST:PORT"):
        meeting_place("--master", text, listens=False)


def test_between_hosts_the_site_chooses_the_network_and_nothing_else():
    caller = {"NCCL_SOCKET_IFNAME": "ib0", "NCCL_IB_HCA": "mlx5", "NCCL_P2P_DISABLE": "1", "PATH": "/bin"}
    several, removed = rank_environment(caller, interface="eth0", several_hosts=True)
    one, kept_back = rank_environment(caller, interface="lo", several_hosts=False)

    assert (several["NCCL_SOCKET_IFNAME"], several["GLOO_SOCKET_IFNAME"]) == ("ib0", "eth0")
    assert removed == ("NCCL_P2P_DISABLE=1",)
    assert one["NCCL_SOCKET_IFNAME"] == "lo"
    assert len(kept_back) == 3
