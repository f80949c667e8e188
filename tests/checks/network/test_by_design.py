"""Hosts on which something is down, absent or odd by design: no network check warns of it."""

import pytest
from msgspec.structs import replace

from gpucheck.checks.network import access, address, counters, firmware, ports, rails
from gpucheck.host.simulated import VERBS
from gpucheck.model import DriverState
from gpucheck.model.host.network import PortCounters
from gpucheck.topology.nics import cards_of_gpus, variables
from tests.checks.judging import FAIL, UNKNOWN, WARN, judge
from tests.checks.network.cards import DOWN, card, gpu, grace, host, named, nic, of_amazon, port
from tests.fakes import facts

CHECKS = (access, address, "nic-choice", counters, firmware, "nic-flaps", "gpudirect", ports, rails)
OPEN = DriverState(loaded_version="580.178.04", loaded_flavour="open")
ASIDE = ("0000:70:00.0",)
ROCE = port(link_layer="ethernet", lid=0, mtu=4220, gids=(3,))
DISABLED = port(state="down", physical="disabled", link_layer="ethernet", lid=0)
ALIKE = (card(), card(), card())


def beside(device, **changes):
    """A healthy host with one more function, which is not below a switch with a GPU."""
    pci = (*host(*ALIKE).pci, nic(7, "mlx5_3", **{"path": ASIDE} | changes))
    return facts(pci=pci, rdma=named([*ALIKE, device]))


def read_twice(first, last):
    readings = ((PortCounters(port="mlx5_0/1", values=values, seconds=n),) for n, values in enumerate((first, last)))
    start, end = readings
    return host(*ALIKE, counters_at_start=start, counters=end)


# The planes of a ConnectX-8: of twelve ports four carry data.
PLANES = tuple(port(number=n) if n % 3 == 0 else replace(DOWN, number=n) for n in range(1, 13))
BOTH_PORTS = (card(port(), replace(DOWN, number=2)),) * 3
BY_DESIGN = {
    "front-end port that is disabled": beside(card(DISABLED)),
    "second port without a transceiver": host(*BOTH_PORTS),
    "virtual function without GUID": beside(card(port(state="init", lid=65535), is_virtual=True, card=None)),
    "function of the NVSwitch bridge": beside(card(port(lid=0), kind="switch"), net_names=()),
    "DPU whose ports are down": beside(card(DISABLED, board="SIM_BLUEFIELD3", model="MT41692"), device_id="a2dc"),
    "bond that hides its legs": host(*(replace(card(ROCE), card=str(n)) for n in range(3))),
    "EFA with its zeros": of_amazon(),
    "counters at their largest values": read_twice(*({"symbol_error": 65535, "link_downed": 255},) * 2),
    "totals of last year": read_twice(*({"symbol_error": 900, "port_xmit_discards": 2846},) * 2),
    "DMA-BUF without nvidia_peermem": host(*ALIKE, driver=OPEN, files={"/proc/modules": "nvidia 1 0 - Live 0x0\n"}),
    "a card a GPU at root ports of Grace": grace(*ALIKE, card()),
    "planes of ConnectX-8": host(*(card(*PLANES),) * 3),
    "fewer cards than GPUs": facts(
        pci=(*map(gpu, range(4)), nic(0, "mlx5_0"), nic(2, "mlx5_1")), rdma=named([card(), card()])
    ),
    "slower switches everywhere": host(*(card(port(rate_gbit_s=200.0)),) * 3),
    "Ethernet without RDMA": facts(pci=(gpu(0), nic(0, class_id="020000"))),
    "no network card": facts(pci=(gpu(0),)),
    "no GPU": facts(pci=(nic(0, "mlx5_0"),), rdma=named([card()])),
}


@pytest.mark.parametrize("name", BY_DESIGN)
def test_nothing_is_loud(name):
    with_library = replace(BY_DESIGN[name], libraries=VERBS, folders={access.PROVIDERS: ("mlx5.driver",)})
    found = [finding for check in CHECKS for finding in judge(check, with_library)]

    assert [one.code for one in found if one.verdict in (WARN, FAIL)] == []


def test_a_host_that_is_not_cabled_yet_is_one_finding():
    dark = host(*(card(DOWN),) * 8, libraries=VERBS, folders={access.PROVIDERS: ("mlx5.driver",)})
    found = [one for check in CHECKS for one in judge(check, dark) if check != "gpudirect"]

    assert [one.code for one in found if one.verdict in (WARN, FAIL, UNKNOWN)] == ["network.no-port-active"]


def test_efa_has_the_line_of_its_plugin_and_no_list_for_nccl():
    found = of_amazon()
    named = replace(found, environment={"NCCL_IB_HCA": "mlx5_0"})

    assert variables(cards_of_gpus(found)) == ("FI_PROVIDER=efa",)
    assert [(one.verdict.value, one.code) for one in address.choice(named)] == [("skip", "network.choice-of-plugin")]
