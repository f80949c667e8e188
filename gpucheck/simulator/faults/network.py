"""Network cards: their ports, their firmware, and cards that are not there."""

import re

from gpucheck.knowledge.port_counters import CEILINGS
from gpucheck.simulator.faults import check_choice, fault, lost
from gpucheck.simulator.machine import Function, Machine

DOWN = {
    "polling": {"ports/1/state": "1: DOWN", "ports/1/phys_state": "2: Polling"},
    "disabled": {"ports/1/state": "1: DOWN", "ports/1/phys_state": "3: Disabled"},
    # The link is up, and no subnet manager has configured the port.
    "init": {"ports/1/state": "2: INIT", "ports/1/phys_state": "5: LinkUp"},
}
ROUTED_GIDS = re.compile(r"^ports/1/(gids|gid_attrs/types)/[23]$")
FLAP_APART_S, DOWN_S = 1200, 7
LOGGED = {
    "health": "poll_health:852:(pid 0): device's health compromised - reached miss count",
    "command": "wait_func:1137:(pid 4012): QUERY_HCA_CAP(0x100) timeout. Will cause a leak of a command resource",
}
NO_LID, LOWEST_RATE = "0xffff", "10 Gb/sec (4X)"
RATES = {
    200: "200 Gb/sec (4X HDR)",
    100: "100 Gb/sec (4X EDR)",
    50: "50 Gb/sec (1X HDR)",
    40: "40 Gb/sec (4X QDR)",
    25: "25 Gb/sec (1X EDR)",
}


def _connectx(machine: Machine, nic: int) -> Function:
    """A card of NVIDIA by its number. Raises ValueError for others, whose drivers show and log something else."""
    card = machine.nic(nic)
    if not card.ids.startswith("15b3:"):
        raise ValueError(f"nic={nic}: EFA, whose driver reports every port as active and without errors")
    return card


@fault("a port of a network card is down, or has no subnet manager")
def nic_down(machine: Machine, nic: int, state: str = "polling") -> None:
    """A bad cable or transceiver, or a switch port that is off; with state=init no subnet manager knows the port."""
    check_choice("state", state, DOWN)
    card = _connectx(machine, nic)
    linked = state == "init"
    card.rdma |= DOWN[state] | ({} if linked else {"ports/1/rate": LOWEST_RATE})
    if card.rdma["ports/1/link_layer"] == "InfiniBand":
        card.rdma["ports/1/lid"] = NO_LID


@fault("a port of a network card is active at a lower rate")
def nic_rate(machine: Machine, nic: int, gbit: int = 100) -> None:
    card = _connectx(machine, nic)
    now = float(card.rdma["ports/1/rate"].partition(" ")[0])
    slower = [rate for rate in RATES if rate < now]
    if gbit not in slower:
        raise ValueError(f"gbit={gbit}: choose one of {slower}, below the {now:g} Gb/s of this card")
    card.rdma["ports/1/rate"] = RATES[gbit]


@fault("a network card runs other firmware than its equals")
def nic_firmware(machine: Machine, nic: int, version: str = "28.36.1010") -> None:
    card = _connectx(machine, nic)
    if version == card.rdma["fw_ver"]:
        raise ValueError(f"version={version}: this card has it")
    card.rdma["fw_ver"] = version


@fault("a network card is not on the PCI bus, or has no RDMA device")
def nic_missing(machine: Machine, nic: int, what: str = "card") -> None:
    """A card that fell off the bus or did not come up at boot; with what=rdma its RDMA driver did not bind to it."""
    check_choice("what", what, ("card", "rdma"))
    card = machine.nic(nic)
    if what == "card":
        del machine.functions[card.bus_id]
    card.infiniband = ()


@fault("a network card is below the PCIe switch of another GPU than its own")
def nic_wrong_rail(machine: Machine, nic: int, slot: int) -> None:
    """A card that was put into another slot: below that of the card with the number slot, which stays there, too."""
    card, other = machine.nic(nic), machine.nic(slot)
    if machine.chain(card.bus_id)[:1] == machine.chain(other.bus_id)[:1]:
        raise ValueError(f"slot={slot}: both cards are below one root port")
    card.parent, card.root, card.numa_node = other.parent, other.root, other.numa_node


@fault("the link of an Ethernet network card goes down and up")
def nic_flap(machine: Machine, nic: int, times: int = 3) -> None:
    card = _connectx(machine, nic)
    if card.rdma["ports/1/link_layer"] != "Ethernet":
        raise ValueError(f"nic={nic}: an InfiniBand port, whose link state the kernel does not log")
    if not 1 <= times <= 100:
        raise ValueError(f"times={times}: 1 to 100")
    name = f" {card.net[0]}" if card.net else ""
    for number in reversed(range(times)):
        machine.log(f"mlx5_core {card.bus_id}{name}: Link down", age_s=FLAP_APART_S * (number + 1), priority=6)
        machine.log(f"mlx5_core {card.bus_id}{name}: Link up", age_s=FLAP_APART_S * (number + 1) - DOWN_S, priority=6)


@fault("the firmware of a network card does not answer the driver")
def nic_driver(machine: Machine, nic: int, what: str = "health") -> None:
    """The driver logs that the firmware no longer counts, or that it does not answer a command.

    reporter: nothing is in the log any more, and the driver has not recovered.
    """
    check_choice("what", what, (*LOGGED, "reporter"))
    if what == "reporter":
        _connectx(machine, nic).reporters["fw_fatal"] = "error"
        return
    machine.log(f"mlx5_core {_connectx(machine, nic).bus_id}: {LOGGED[what]}", age_s=600)


@fault("a transceiver is above its temperature limit")
def nic_hot(machine: Machine, nic: int) -> None:
    card = _connectx(machine, nic)
    machine.log(
        f"mlx5_core {card.bus_id}: Port module event[error]: module 0, Cable error, High Temperature", age_s=600
    )


def _moves(machine: Machine, nic: int, ethernet: dict[str, float], infiniband: dict[str, float]) -> None:
    card = _connectx(machine, nic)
    rates = ethernet if card.rdma["ports/1/link_layer"] == "Ethernet" else infiniband
    _moving(machine)[f"{card.infiniband[0]}/1"] = rates


def _moving(machine: Machine) -> dict[str, dict[str, float] | None]:
    return machine.surroundings.setdefault("moving", {})  # type: ignore[return-value]


@fault("errors of a link rise that its error correction cannot repair")
def nic_errors(machine: Machine, nic: int, per_s: int = 2000) -> None:
    ethernet = {"rx_pcs_symbol_err_phy": per_s, "rx_crc_errors_phy": per_s / 2, "packet_seq_err": per_s}
    _moves(machine, nic, ethernet, {"symbol_error": per_s, "port_rcv_errors": per_s / 2})


@fault("the network drops packets of a port, and its link is healthy")
def nic_congestion(machine: Machine, nic: int) -> None:
    ethernet = {"rx_discards_phy": 40_000.0, "roce_slow_restart": 30_000, "rx_prio3_pause_duration": 900_000}
    _moves(machine, nic, ethernet, {"port_xmit_discards": 40_000, "port_xmit_wait": 9_000_000})


@fault("a port has another address, partition or MTU than its equals")
def nic_address(machine: Machine, nic: int, what: str = "") -> None:
    """InfiniBand: no lid, or another pkey. Ethernet: no routed gid, or another mtu. By default the first of both."""
    card = _connectx(machine, nic)
    own = ("gid", "mtu") if card.rdma["ports/1/link_layer"] == "Ethernet" else ("lid", "pkey")
    check_choice("what", what, ("", *own))
    if what == "mtu":
        card.mtu = 1500
    elif what == "pkey":
        card.rdma["ports/1/pkeys/0"] = "0x8001"
    elif own[0] == "lid":
        card.rdma["ports/1/lid"] = NO_LID
    else:
        card.rdma = {name: text for name, text in card.rdma.items() if not ROUTED_GIDS.search(name)}


@fault("the PCIe link of a network card has fewer lanes or a lower generation than both ends support")
def nic_pcie(machine: Machine, nic: int, width: int = 0, gen: int = 0, reads: int = 0) -> None:
    """A card that is not fully seated, or a worn riser. Without parameters half of the lanes are lost.

    reads: instead of that, the card asks for so many bytes at once, as the firmware of a host sets it for some slots.
    """
    card = machine.nic(nic)
    if reads:
        check_choice("reads", str(reads), ("128", "256"))
        card.read_request = reads
        return
    width, gen = width or (card.width if gen else card.width // 2), gen or card.generation
    if (width, gen) >= (card.width, card.generation) or width > card.width or gen > card.generation:
        raise ValueError(f"width={width},gen={gen}: less than Gen{card.generation} x{card.width}")
    for end in (card, machine.slot(card)):
        end.width, end.generation = width, gen


@fault("error counters of a port are at the largest value of their registers")
def nic_saturated(machine: Machine, nic: int) -> None:
    """They were not cleared since the card was installed: what comes now is not counted."""
    card = _connectx(machine, nic)
    names = [name for name in card.rdma if name.rpartition("/")[2] in CEILINGS]
    card.rdma |= {name: str(CEILINGS[name.rpartition("/")[2]]) for name in names}


@fault("a network card leaves the bus while the host is checked")
def nic_vanishes(machine: Machine, nic: int) -> None:
    _moving(machine)[f"{machine.nic(nic).infiniband[0]}/1"] = None


@fault("the files of a network card cannot be read")
def nic_unreadable(machine: Machine, nic: int) -> None:
    card = machine.nic(nic)
    card.rdma = {name: text for name, text in card.rdma.items() if not name.startswith("ports/")}


@fault("a network card moves less data than its port and its PCIe path carry")
def nic_slow(machine: Machine, nic: int, percent: int = 50) -> None:
    card = machine.nic(nic)
    surroundings = machine.surroundings.setdefault("network", {})
    assert isinstance(surroundings, dict)  # noqa: S101 - written here only
    surroundings |= dict.fromkeys(card.infiniband, 1 - lost(percent) / 100)


def _require_rdma(machine: Machine) -> None:
    if not any(function.infiniband for function in machine.functions.values()):
        raise ValueError(f"profile {machine.profile.name} has no network card with RDMA")


@fault("programs cannot use the network cards: no libibverbs, or no device file of a card")
def verbs_missing(machine: Machine, what: str = "library", nic: int = 0) -> None:
    check_choice("what", what, ("library", "file"))
    if what == "library":
        _require_rdma(machine)
        machine.surroundings["verbs"] = False
    else:
        name = machine.nic(nic).infiniband[0]
        machine.missing_nodes.add(f"infiniband/{machine.device_files[name]}")


@fault("nvidia_peermem is not loaded")
def peermem_missing(machine: Machine) -> None:
    """Network cards then have no way to GPU memory: DMA-BUF needs the open modules."""
    _require_rdma(machine)
    machine.require_driver()
    if machine.driver.loaded_flavour != "proprietary":
        raise ValueError("the open modules of this machine need no nvidia_peermem")
    machine.peer_memory = False
