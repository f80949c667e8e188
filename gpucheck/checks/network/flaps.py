"""Link flaps: did the link of a network card of the GPUs go down and up several times?

Source: Link down and Link up in the kernel log, which drivers write for Ethernet ports only. Totals such as link_downed
have no date and are not used. Not counted: the first half hour after boot, when links train and cables are plugged; and
what all ports of the host did in the same seconds, which is their switch.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import quick_check
from gpucheck.checks.kernel._events import Outage, outages
from gpucheck.checks.network._cards import about, cards
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding
from gpucheck.model.facts import Facts
from gpucheck.topology.nics import NEEDS

NAME = "nic-flaps"
AFTER_BOOT_S = 1800.0
HOURS = 12
TIMES = 2
# The ports of one switch go down together.
TOGETHER_S = 3.0
SEVERAL = 3


def evaluate(facts: Facts) -> Iterator[Finding]:
    """A finding for each card whose link flaps, or one for the host."""
    found, none = cards(NAME, facts)
    log = facts.kernel_log
    # Of two ports of one function the log names only the function.
    ethernet = {card.pci.bus_id: card for card in found if any(p.link_layer == "ethernet" for p in card.device.ports)}
    host = Subject(check=NAME)
    if none is not None:
        yield none
    elif not ethernet:
        yield host.skips("network.no-ethernet-port", 0)
    elif log.source is None:
        yield host.unknown("network.flaps-unknown", error=log.denied)
    else:
        every = _of_single_ports(outages(log.lines, after=AFTER_BOOT_S), len(ethernet))
        flapping = {bus: own for bus in ethernet if len(own := _latest([o for o in every if o.bus == bus])) >= TIMES}
        for bus, own in flapping.items():
            card = ethernet[bus]
            evidence = tuple(f"[{o.down:.0f} s] down, [{o.up:.0f} s] up" for o in own[-5:])
            yield about(NAME, card, *evidence).warns(
                "network.link-flaps", len(own), 0, device=card.device.name, times=len(own), hours=HOURS
            )
        if not flapping:
            yield host.passes(f"{len(ethernet)} links without flaps")


def _of_single_ports(every: list[Outage], ports: int) -> list[Outage]:
    if ports < SEVERAL:
        return every
    return [one for one in every if len({o.bus for o in every if abs(o.down - one.down) <= TOGETHER_S}) < ports]


def _latest(own: list[Outage]) -> list[Outage]:
    windows = ([o for o in own if 0 <= o.down - first.down <= HOURS * 3600] for first in own)
    return max(windows, key=len, default=[])


LIMITS = (f"WARN from {TIMES} times within {HOURS} hours on; not in the first {AFTER_BOOT_S / 60:g} minutes",)
CHECK = quick_check(NAME, "hardware network", evaluate, (*NEEDS, "kernel_log"), limits=LIMITS)
