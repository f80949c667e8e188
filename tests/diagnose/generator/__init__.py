"""Simulated GPU machines with known faults, drawn at random, for measuring how well causes are named.

Nothing here comes from the package under test: rates, path shares and rules are stated again in this directory.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from tests.diagnose.generator import faults, kinds, known, limits, report
from tests.diagnose.generator.world import World

HEALTHY_SHARE = 0.5


@dataclass(frozen=True)
class Case:
    """One machine: what is known of it, what is true of it, and which causes are plainly false.

    truth: (cause key, subject), faults and limits by design; subjects as findings write them (``host``,
    ``gpu:<bus id>``, ``pair:<bus id>-<bus id>``, ``link:<bus id>``), with ``GPU<index>`` for a bus id that the
    observations do not contain. A truth holds even if the observations cannot show it.
    behind: GPUs (as named in subjects) below each bridge, by bus id.
    """

    seed: int
    kind: str
    level: str
    observations: dict[str, Any]
    truth: frozenset[tuple[str, str]]
    tempting: frozenset[str]
    gpus: tuple[str, ...]
    behind: dict[str, frozenset[str]] = field(default_factory=dict)

    @property
    def faults(self) -> frozenset[str]:
        """Causes of the truth that are faults, not limits by design or policy."""
        return frozenset(cause for cause, _ in self.truth if limits.is_fault(cause))


def machine(seed: int) -> Case:
    """Draw one machine. The same seed gives the same machine on every Python 3."""
    rng = random.Random(seed)
    world = kinds.draw(rng)
    if rng.random() >= HEALTHY_SHARE:
        faults.break_machine(world, rng)
    limits.add_limits(world)
    facts = known.draw(rng)
    observations = report.observe(world, facts, rng)
    names = {slot.bus_id: slot.bus_id if "bus_id" in facts else f"GPU{slot.index}" for slot in world.slots}
    return Case(
        seed=seed,
        kind=world.kind,
        level=facts.level,
        observations=observations,
        truth=frozenset((cause, _renamed(subject, names)) for cause, subject in world.truth),
        tempting=limits.plainly_false(world),
        gpus=tuple(names.values()),
        behind=_behind(world, names),
    )


def _renamed(subject: str, names: dict[str, str]) -> str:
    for bus_id, name in names.items():
        subject = subject.replace(bus_id, name)
    return subject


def _behind(world: World, names: dict[str, str]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for slot in world.slots:
        bridges = [slot.slot_bus]
        if slot.switch is not None:
            bridges += [world.switches[slot.switch].bus_id, world.switches[slot.switch].root_bus]
        for bridge in bridges:
            found.setdefault(bridge, set()).add(names[slot.bus_id])
    return {bridge: frozenset(gpus) for bridge, gpus in found.items()}
