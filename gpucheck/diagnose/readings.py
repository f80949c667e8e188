"""What registers, return codes, byte compares and hangs mean for and against an explanation, as log-probabilities."""

from collections.abc import Iterator
from math import log
from typing import NamedTuple

from gpucheck.diagnose.instance import Link
from gpucheck.diagnose.machine import Machine, rate_of
from gpucheck.diagnose.paths import Pair
from gpucheck.diagnose.world import World
from gpucheck.model.diagnosis.observations import Hang, Port

# A register read under load is right but for a read between two copies; an idle link shows a lower generation as often
# as not, and sometimes fewer lanes.
WRONG_UNDER_LOAD, IDLE_GENERATION, IDLE_WIDTH = 0.01, 0.5, 0.03
NEVER = 1e-5  # of a symptom that nothing in the explanation brings about
HANG_ANYWAY = 2e-4
SLOW_DIRECT, SLOW_ACROSS = 0.004, 0.2  # how often a healthy machine is slower direct than staged


class Reading(NamedTuple):
    """How likely one reading is under an explanation (natural logarithm), and the reading as text."""

    log_probability: float
    words: str


def readings(world: World) -> Iterator[Reading]:
    """Every reading that distinguishes explanations."""
    m = world.machine
    for i, gpu in enumerate(m.seen.gpus):
        for port, name in ((gpu.pcie, "link"), *((port, "link under load") for port in m.under_load(i))):
            yield from _port(port, *actual(world, i), f"GPU {i} {name}")
    yield from _uplinks(world)
    yield from _detour(world)
    yield from _data(world)
    yield from _hang(world)


def actual(world: World, i: int) -> Link:
    """Generation and width at which GPU i's link runs in this explanation."""
    most = world.machine.link[i]
    generation, width = world.links.get(i, (None, None))
    return generation or most.max_generation, width or most.max_width


def _port(port: Port, generation: int | None, width: int | None, name: str) -> Iterator[Reading]:
    read = f"read {port.read or 'at an unknown time'}"
    if port.gen and generation:
        yield Reading(log(_generation(port, generation)), f"{name}: generation {port.gen} {read}")
    if port.width and width:
        wrong = WRONG_UNDER_LOAD if port.read == "load" else IDLE_WIDTH
        narrower = port.width < width
        likely = 1 - wrong if port.width == width else wrong * (0.9 if narrower else 0.02)
        yield Reading(log(likely), f"{name}: x{port.width} {read}")


def _generation(port: Port, generation: int) -> float:
    low = {"load": WRONG_UNDER_LOAD, "idle": IDLE_GENERATION}.get(port.read or "", 0.3)
    if port.gen == generation:
        return 1 - low
    return low * 0.5 if (port.gen or 0) < generation else NEVER * 10


def _uplinks(world: World) -> Iterator[Reading]:
    m = world.machine
    for port in m.shared_ports:
        group = frozenset(m.behind(port))
        if group in world.uplinks or not (port.gen and port.width):
            # An explanation that changes the uplink takes its rate from this very reading, or is the worse for it.
            raw = rate_of(port.gen, port.width)
            if raw and group in world.uplinks:
                fits = abs(log(world.uplinks[group] / raw)) < 0.05
                yield Reading(log(0.97 if fits else 0.02), f"uplink {port.bus_id}: {raw:g} GB/s raw")
            continue
        yield from _port(port, port.max_gen or port.gen, port.max_width or port.width, f"uplink {port.bus_id}")


def _detour(world: World) -> Iterator[Reading]:
    """A direct copy passes each link once, a staged one passes memory as well: it is not the faster one of the two."""
    m = world.machine
    slower = m.detours
    if not slower:
        return
    direct_ones = [pair for pair in slower if world.way(pair) == "direct"]
    sockets = all(m.classes[pair] == "SYS" for pair in direct_ones)
    likely = 0.5 if not direct_ones else SLOW_ACROSS if sockets else SLOW_DIRECT
    yield Reading(log(likely), f"{len(slower)} pairs slower than through host memory")


def _data(world: World) -> Iterator[Reading]:
    """Bytes that were compared."""
    m, seen = world.machine, world.machine.measured
    bad = bad_pairs(m)
    tested = compared(m)
    chance = world.symptoms.get("wrong data", 0.0)
    wrong = [row.wrong for row in seen.collectives if row.wrong is not None]
    if wrong:
        # NCCL may have gone another way than the pairs' own copies.
        likely = max(chance, NEVER) if any(wrong) else 1 - 0.7 * chance
        yield Reading(log(likely), f"collectives: {sum(wrong)} wrong elements")
    if not tested:
        return
    if not bad:
        yield Reading(log(max(1 - chance, NEVER)), "every byte compared was right")
        return
    covered = {
        pair for instance in world.instances if instance.change.symptoms.get("wrong data") for pair in instance.pairs
    }
    for pair in sorted(bad):
        likely = chance if pair in covered and chance else NEVER
        yield Reading(log(likely), f"wrong data between GPU {pair[0]}-{pair[1]}")
    for pair in sorted(covered - bad):
        yield Reading(log(0.5), f"right data between GPU {pair[0]}-{pair[1]}")
    for damage in damages(m):
        yield Reading(log(world.symptoms.get(f"damage {damage}", 0.02)), f"what arrived: {damage}")


def compared(m: Machine) -> bool:
    """Whether bytes that arrived were compared with what was sent."""
    seen = m.measured
    return seen.integrity_bad_pairs is not None or bool(seen.damaged) or bool(seen.damage) or bool(seen.bytes_compared)


def bad_pairs(m: Machine) -> set[Pair]:
    """Pairs whose data was wrong; every pair where only the kind of damage is known."""
    seen = m.measured
    wrong = [*(seen.integrity_bad_pairs or ()), *(pair for row in seen.damaged for pair in row.pairs)]
    bad = {(min(pair), max(pair)) for pair in wrong}
    return set(m.pairs) if not bad and seen.damage else bad


def damages(m: Machine) -> list[str]:
    """The kinds of damage that were seen, each once."""
    return sorted({str(kind) for kind in (m.measured.damage, *(row.damage for row in m.measured.damaged)) if kind})


def hang_of(m: Machine) -> Hang | None:
    """The hang that was observed, or a copy by gpucheck that was stuck."""
    seen = m.measured.hang
    if seen:
        return seen if isinstance(seen, Hang) else Hang()
    stuck = [failure for failure in m.measured.failures if failure.kind == "stuck" and failure.pairs]
    if not stuck:
        return None
    gpus = sorted({i for failure in stuck for pair in failure.pairs for i in pair})
    return Hang(op=f"copy ({stuck[0].step})", gpus=tuple(gpus))


def _hang(world: World) -> Iterator[Reading]:
    hang = hang_of(world.machine)
    if hang is None:
        return
    chance = world.symptoms.get("hang", HANG_ANYWAY)
    yield Reading(log(chance), f"{hang.op or 'a copy'} hangs")
    if hang.with_p2p_off is not None:
        off = world.symptoms.get("hang with P2P off", 0.02)
        yield Reading(log(off if hang.with_p2p_off else 1 - off), f"hangs with P2P off: {hang.with_p2p_off}")
