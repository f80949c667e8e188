"""What hypotheses share: links that a GPU may have instead, GPUs that look slow, and shapes of instances."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from gpucheck.diagnose.instance import Change, Instance, Link, Way
from gpucheck.diagnose.machine import Machine, rate_of
from gpucheck.diagnose.paths import NEAR, Pair
from gpucheck.diagnose.readings import hang_of
from gpucheck.model.diagnosis.observations import Port

LANES = (8, 4, 2, 1)
# A GPU whose best number is below this part of the others' is worth a closer look; healthy ones differ by less.
LOOKS_SLOW = 0.94
UNDER_LOAD = "nvidia-smi -q -d PCIE while copying"
PEER_WAY = "the way of peer copies"


def narrowed(port: Port, limit: int | None = None) -> bool:
    """Fewer lanes than both ends have. limit: of the path, where a port of it has fewer than this one."""
    return bool(port.width and port.max_width and port.width < min(port.max_width, limit or port.max_width))


def slowed(port: Port, limit: int | None = None) -> bool:
    """A lower generation than both ends can do; means nothing when it was read on an idle link. limit: of the path."""
    return bool(port.gen and port.max_gen and port.gen < min(port.max_gen, limit or port.max_gen))


@lru_cache(maxsize=8)
def best_numbers(m: Machine) -> dict[int, float]:
    """The most that passed each GPU's own PCIe link in one direction, GB/s; 0.0 where nothing was measured."""
    best = dict.fromkeys(range(m.count), 0.0)
    seen = m.measured
    matrices = [(seen.p2p_uni_gb_s, 1.0, True), (seen.p2p_bidir_gb_s, 0.5, True)]
    matrices += [(seen.staged_uni_gb_s, 1.0, False), (seen.staged_bidir_gb_s, 0.5, False)]
    for matrix, part, peer in matrices:
        for i, j in m.pairs if matrix else ():
            if peer and m.is_nvlink((i, j)) and m.access[(i, j)] is not False:
                continue
            for a, b in ((i, j), (j, i)):
                value = (matrix[a][b] or 0.0) * part  # type: ignore[index]
                best[i], best[j] = max(best[i], value), max(best[j], value)
    for row in seen.host_device:
        best[row.gpu] = max(best[row.gpu], row.h2d_gb_s or 0.0, row.d2h_gb_s or 0.0)
    return best


@lru_cache(maxsize=8)
def candidates(m: Machine) -> tuple[int, ...]:
    """GPUs whose own link may be slow: by a reading, or by numbers below those of the others."""
    best = best_numbers(m)
    most = max(best.values(), default=0.0)
    read = {i for i in range(m.count) if port_read(m, i, width=True) or port_read(m, i, width=False)}
    if m.count <= 3:
        return tuple(range(m.count))
    return tuple(i for i in range(m.count) if i in read or (best[i] and best[i] < LOOKS_SLOW * most))


def _ports(m: Machine, i: int) -> Iterator[Port]:
    """Readings of GPU i's link, those under load first."""
    yield from m.under_load(i)
    yield m.gpu(i).pcie
    yield from m.own_ports(i)


def port_read(m: Machine, i: int, *, width: bool) -> Port | None:
    """The reading under load, or of a port that serves this GPU alone, that shows fewer lanes or a lower generation."""
    most = m.link[i]
    if width:
        return next((port for port in _ports(m, i) if narrowed(port, most.max_width)), None)
    return next((port for port in _ports(m, i) if slowed(port, most.max_generation)), None)


def maybe_by_design(m: Machine, i: int) -> bool:
    """Half of the card's lanes, and the width of the slot is unknown."""
    pcie = m.gpu(i).pcie
    half = bool(pcie.width and pcie.max_width and pcie.width * 2 == pcie.max_width)
    return half and not any(port.max_width for port in m.own_ports(i))


def maybe_chipset(m: Machine, i: int) -> bool:
    """A desktop whose paths were not read: a slot with four lanes or fewer is often the chipset's."""
    small = m.count <= 6 and (m.host.sockets or 1) == 1 and not m.host.virtual
    below_a_switch = any(m.classes[pair] in NEAR for pair in m.pairs_with(i))
    return small and not below_a_switch and not any(port.kind for port in m.gpu(i).path)


def passed(m: Machine, i: int) -> float:
    """The most that was seen to pass GPU i's link, GB/s."""
    return best_numbers(m)[i]


def impossible(m: Machine, i: int, generation: int | None, width: int | None) -> bool:
    """More was seen to pass than such a link carries."""
    raw = rate_of(generation, width)
    return raw is not None and passed(m, i) > raw * 0.98


def words(port: Port) -> str:
    """``Gen3 x8 of Gen4 x16``."""
    return f"Gen{port.gen or '?'} x{port.width or '?'} of Gen{port.max_gen or '?'} x{port.max_width or '?'}"


def pairs_of(m: Machine, i: int) -> tuple[Pair, ...]:
    """A GPU's pairs over PCIe."""
    return tuple(pair for pair in m.pairs_with(i) if not m.is_nvlink(pair))


def over_pcie(m: Machine) -> tuple[Pair, ...]:
    """Pairs whose copies would go straight over PCIe: peer access not denied, no NVLink.

    A product that comes with NVLink may do without: where something hangs and no number shows it, nothing is known.
    """
    unknown = hang_of(m) is not None and not m.is_nvswitch and not m.seen.matrix
    return tuple(
        pair
        for pair in m.pairs
        if not m.is_nvlink(pair)
        and m.access[pair] is not False
        and (not m.unseen_links[pair] or (unknown and not m.fastest(pair)))
    )


def other_way(
    cause: str | None, slow: tuple[Pair, ...], way: Way, *, symptoms: dict[str, float] | None = None, **words: Any
) -> Instance:
    """Peer copies of these pairs go another way. words: the other fields of an Instance."""
    change = Change(ways=dict.fromkeys(slow, way), symptoms=symptoms or {})
    return Instance(**{"cause": cause, "change": change, "pairs": slow, "excludes": PEER_WAY, **words})


def other_link(m: Machine, cause: str, gpus: tuple[int, ...], link: Link, **words: Any) -> Instance:
    """The links of one GPU, or of several, run at this generation and width. words: as in other_way."""
    several = len(gpus) > 1
    return Instance(
        cause=cause,
        subject="host" if several else m.gpu_label(gpus[0]),
        change=Change(links=dict.fromkeys(gpus, link)),
        excludes=f"link {'all' if several else gpus[0]}",
        pairs=tuple(pair for i in gpus for pair in pairs_of(m, i)),
        **words,
    )


def damage_symptoms(chances: dict[str, float]) -> dict[str, float]:
    """Probability of each type of corruption, as in ``Change.symptoms``."""
    return {f"damage {kind}": chance for kind, chance in chances.items()}


def one_or_host(m: Machine, pairs: Iterable[Pair]) -> str:
    """The subject of a cause: a pair that is alone, else the host."""
    pairs = list(pairs)
    return m.pair_label(pairs[0]) if len(pairs) == 1 else "host"
