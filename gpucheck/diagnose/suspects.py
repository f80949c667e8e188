"""What may be behind slow, wrong or hung copies: a list in order, which readings change.

A reading that shows a cause moves it to the front; one that shows its absence strikes it. The strongest strike is
arithmetic: if more has passed this link, the link is not the limit.
"""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from gpucheck.checks._healthy import Level
from gpucheck.checks._machine import Machine, Pair, link_of
from gpucheck.checks.pcie.link import low_link, may_be_chipset
from gpucheck.checks.pcie.path import low_uplinks
from gpucheck.knowledge.causes import suspects_of
from gpucheck.model.diagnosis.observations import Hang
from gpucheck.topology.expected import FAR

# Causes of slow peer copies that leave copies through host memory as they are.
PEER_WAY = frozenset(("acs-redirect", "iommu-translation", "false-p2p-grant", "rebar-off"))
# Limits that are no fault. The healthy value contains them, so they are the last suspects of a number far below it.
BY_DESIGN = frozenset(("narrow-by-design", "expected-limit", "cross-socket", "geforce-p2p-disabled", "shared-uplink"))
CARRIES = 0.5  # of a link: copies through it reach at least so much
NOT_USED_US = 8.0  # a small copy that takes longer went through host memory; peer copies take 1 to 4 us
SAME_AS_STAGED = 0.9, 1.15


class Suspect(NamedTuple):
    """A cause that fits. read: a reading shows it."""

    cause: str
    read: bool


class About(NamedTuple):
    """The machine, the copies in question, and the GPUs that they have in common, else all of them."""

    m: Machine
    pairs: list[Pair]
    gpus: list[int]


def suspects(m: Machine, pattern: str, pairs: list[Pair], rows: list[Level] | None = None) -> list[Suspect]:
    """Return the suspects of a pattern in order, without those that a reading strikes."""
    every = sorted({i for pair in pairs for i in pair})
    common = sorted(set.intersection(*map(set, pairs))) if pairs else []
    about = About(m, pairs, common if len(common) == 1 else every)
    named = [(cause, reading(about, cause)) for cause in suspects_of(pattern)]
    far = bool(rows) and median(row.z for row in rows or ()) < FAR
    left = [Suspect(cause, found is True) for cause, found in named if found is not False]
    return sorted(left, key=lambda one: (not one.read, far and one.cause in BY_DESIGN))


def cause_of(found: list[Suspect]) -> dict[str, Any]:
    """Return what a finding states of these suspects: the first, how sure it is, and the others."""
    if not found:
        return {}
    sure = "likely" if found[0].read else "possible"
    return {"cause": found[0].cause, "confidence": sure, "others": tuple(one.cause for one in found[1:])}


def reading(about: About, cause: str) -> bool | None:
    if cause in PEER_WAY and about.pairs and not any(about.m.over_pcie(pair) for pair in about.pairs):
        return False
    return READINGS[cause](about) if cause in READINGS else None


def hang_of(m: Machine) -> Hang | None:
    if seen := m.measured.hang:
        return seen if isinstance(seen, Hang) else Hang()
    stuck = [failure for failure in m.measured.failures if failure.kind == "stuck" and failure.pairs]
    gpus = sorted({i for failure in stuck for pair in failure.pairs for i in pair})
    return Hang(op=f"copy ({stuck[0].step})", gpus=tuple(gpus)) if stuck else None


def bad_pairs(m: Machine) -> list[Pair]:
    """Return the pairs whose data was wrong; every pair if only the kind of damage is known."""
    seen = m.measured
    copied = [row for row in seen.damaged if not row.at_source]
    wrong = [*(seen.integrity_bad_pairs or ()), *(pair for row in copied for pair in row.pairs)]
    found = sorted({(min(pair), max(pair)) for pair in wrong})
    return list(m.pairs) if not found and seen.damage else found


def _own_link(about: About, field: str) -> bool | None:
    states = [low_link(about.m, i, field) for i in about.gpus]
    if any(states):
        # A number far below what the link that was read carries has another reason.
        rates = [
            link.gb_s for i in about.gpus for port in about.m.read_links(i) if (link := link_of(port.gen, port.width))
        ]
        return None if rates and _most(about) < CARRIES * min(rates) else True
    return False if all(fast or state is False for fast, state in zip(_fast(about), states, strict=True)) else None


def _fast(about: About) -> list[bool]:
    """Whether more passed the link of each GPU than half of it carries, or clearly more than these copies."""
    m, most = about.m, _most(about)
    return [bool((raw := m.raw[i]) and m.passed[i] > 0.52 * raw.gb_s) or m.passed[i] > 1.25 * most for i in about.gpus]


def _most(about: About) -> float:
    return max((value for pair in about.pairs for value in about.m.one_way(pair)), default=99.0)


def _chipset(about: About) -> bool | None:
    m = about.m
    if any(m.is_behind_chipset(i) for i in about.gpus):
        return True
    rates = [raw.gb_s if (raw := m.raw[i]) else 99.0 for i in about.gpus]
    fast = any(m.passed[i] > max(7.9, 0.3 * raw) for i, raw in zip(about.gpus, rates, strict=True))
    fast = fast or all(m.passed[i] > 1.25 * _most(about) for i in about.gpus)
    return None if may_be_chipset(m, about.gpus) and not fast else False


def _uplink(about: About) -> bool | None:
    m = about.m
    groups = [group for group in m.uplinks if any((i in group) != (j in group) for i, j in about.pairs)]
    ports = [port for group in groups for port in m.uplinks[group]]
    if any(low_uplinks(m, group) for group in groups):
        return True
    whole = ports and all(port.read == "load" and port.gen and port.width for port in ports)
    return False if whole or not m.uplinks else None


def _acs(about: About) -> bool | None:
    m = about.m
    below = any(m.is_near(pair) or m.classes[pair] is None for pair in about.pairs)
    return False if m.acs is False or not (below or m.acs) else m.acs


def _iommu(about: About) -> bool | None:
    m = about.m
    straight = m.acs is False and all(map(m.is_near, about.pairs))
    return False if m.translating is False or straight else m.translating


def _false_grant(about: About) -> bool | None:
    """Only with a sign of it: a product or guest where grants are wrong, staged rates or times, or wrong data and hangs
    of these GPUs.
    """
    m, seen = about.m, about.m.measured
    hang = hang_of(m)
    bad = {i for pair in bad_pairs(m) for i in pair} | {*(hang.gpus or range(m.count) if hang else ())}
    sign = m.is_geforce or m.host.virtual or not bad.isdisjoint(i for pair in about.pairs for i in pair)
    latency = seen.p2p_latency_us
    late = any((us := latency[i][j]) and us > NOT_USED_US for i, j in about.pairs) if latency else False
    low, high = SAME_AS_STAGED
    same = any(
        low < median(one) / median(other) < high
        for pair in about.pairs
        if (one := m.one_way(pair)) and (other := m.one_way(pair, staged=True))
    )
    return None if (sign or late or same) and any(m.access[pair] for pair in about.pairs) else False


def _access_unknown(about: About) -> bool:
    return any(about.m.access[pair] is None for pair in about.pairs)


def _links_up(about: About) -> bool:
    """Of these GPUs, or where no switch has them all, between the two of each pair: as many as any other pair has."""
    m = about.m
    counted = [m.gpu(i).nvlinks for i in about.gpus]
    most = max(map(m.links, m.pairs), default=0) if len(m.pairs) > 1 and not m.is_nvswitch else 0
    whole = most > 0 and all(m.links(pair) == most for pair in about.pairs)
    return whole or all(links.active and links.active == links.total for links in counted)


def _without_errors(about: About) -> bool:
    rows = {row.gpu: row.errors for row in about.m.measured.under_load}
    return all(rows.get(i) is not None and not rows[i] for i in about.gpus)


def _unless(struck: Callable[[About], object]) -> Callable[[About], bool | None]:
    """A cause that no reading shows, and this one strikes."""
    return lambda about: False if struck(about) else None


def _only_if(possible: Callable[[About], object]) -> Callable[[About], bool | None]:
    return _unless(lambda about: not possible(about))


READINGS: dict[str, Callable[[About], bool | None]] = {
    "pcie-link-downgraded": lambda about: False if about.m.host.virtual else _own_link(about, "gen"),
    "pcie-width-reduced": partial(_own_link, field="width"),
    "gpu-behind-chipset": _chipset,
    "uplink-downgraded": _uplink,
    "acs-redirect": _acs,
    "iommu-translation": _iommu,
    "rebar-off": lambda about: any(map(about.m.has_small_bar, about.pairs)),
    "cross-socket": _only_if(lambda about: about.m.host.sockets != 1 and any(map(about.m.crosses, about.pairs))),
    "false-p2p-grant": _false_grant,
    "vm-no-p2p": _only_if(lambda about: about.m.host.virtual and _access_unknown(about)),
    "geforce-p2p-disabled": _only_if(lambda about: about.m.is_geforce and _access_unknown(about)),
    "p2p-unsupported-pair": _only_if(lambda about: len({gpu.model for gpu in about.m.seen.gpus} - {None}) > 1),
    "narrow-by-design": _unless(lambda about: all(map(about.m.is_slot_read, about.gpus)) or all(_fast(about))),
    "fabric-manager-down": _only_if(lambda about: about.m.is_nvswitch),
    "nvlink-down": _unless(_links_up),
    "nvlink-missing": _unless(_links_up),
    "nvlink-errors": _unless(_without_errors),
    "expected-limit": _unless(lambda about: any(map(about.m.is_near, about.pairs))),
}
