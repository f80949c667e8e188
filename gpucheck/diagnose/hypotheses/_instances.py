"""Shapes of instances that several hypotheses have: peer copies that go another way, links that are slower."""

from collections.abc import Iterable
from typing import Any

from gpucheck.diagnose.hypotheses._links import pairs_of
from gpucheck.diagnose.instance import Change, Instance, Link, Way
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.paths import Pair

PEER_WAY = "the way of peer copies"


def other_way(
    cause: str | None, slow: tuple[Pair, ...], way: Way, *, says: dict[str, float] | None = None, **words: Any
) -> Instance:
    """Peer copies of these pairs go another way. words: the other fields of an Instance."""
    change = Change(ways=dict.fromkeys(slow, way), says=says or {})
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


def damage_says(chances: dict[str, float]) -> dict[str, float]:
    """Probability of each type of corruption, as in ``Change.says``."""
    return {f"damage {kind}": chance for kind, chance in chances.items()}


def one_or_host(m: Machine, pairs: Iterable[Pair]) -> str:
    """The subject of a cause: a pair that is alone, else the host."""
    pairs = list(pairs)
    return m.pair_label(pairs[0]) if len(pairs) == 1 else "host"
