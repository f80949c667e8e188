"""NVLinks that are down or missing: counted, in the matrix, or as lost bandwidth."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.diagnose.instance import Change, Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.paths import Pair
from gpucheck.model.finding.verdict import Verdict

BY_NUMBER, COUNTED, UNEVEN = 0.008, 50.0, 30.0
PARTS = (0.75, 0.5, 0.25)
FOUR_WAY = 12  # links of cards that come with a four-way bridge too, half of them to each neighbour
STATES = "nvidia-smi nvlink -s shows each link's state, nvidia-smi nvlink -e its errors"


def instances(m: Machine) -> Iterator[Instance]:
    """By the count of active links, by an uneven matrix, else by bandwidth that fits fewer links."""
    down = [i for i in range(m.count) if lost_links(m, i)]
    for i in down:
        yield _counted(m, i)
    if down:
        yield from _bridges(m, down)
        return
    uneven = list(_uneven(m))
    yield from uneven
    if uneven or all(m.gpu(i).nvlinks.active for i in range(m.count)):
        return
    joined = [pair for pair in m.pairs if m.links(pair) > 1]
    for i in range(m.count) if m.count > 2 else ():
        mine = tuple(pair for pair in joined if i in pair)
        if mine and len(mine) < len(joined) and _slower(m, i):
            yield from (_by_number(m, mine, m.gpu_label(i), part) for part in PARTS)
    for pair in joined if len(joined) <= 28 else ():
        if _slow_pair(m, pair):
            yield from (_by_number(m, (pair,), m.pair_label(pair), part) for part in PARTS)


def wanted_links(m: Machine, i: int) -> int | None:
    """Links in use on the product; a bare count of ports where the product is not known."""
    counted, model = m.gpu(i).nvlinks, m.models[i]
    if model and model.nvlink:
        return min(model.nvlink.links, counted.total or model.nvlink.links)
    return counted.total


def lost_links(m: Machine, i: int) -> int:
    """How many links of GPU i should be up and are not; 0 where that is by design or not known."""
    active, wanted, model = m.gpu(i).nvlinks.active, wanted_links(m, i), m.models[i]
    if active is None or not wanted or active >= wanted or (m.host.virtual and active == 0):
        return 0
    bridge = bool(model and model.nvlink and model.nvlink.bridge)
    if active == 0 and (bridge or model is None or model.nvlink is None):
        return 0  # a card without a bridge is a normal product
    peers = {m.gpu(j).nvlinks.active for j in range(m.count)}
    identical = len(peers) == 1 and m.count > 1
    return 0 if identical and bridge and wanted >= FOUR_WAY and active * 2 == wanted else wanted - active


def _bridges(m: Machine, down: list[int]) -> Iterator[Instance]:
    """Two cards of one bridge that both lost links: the bridge, as much as the cards."""
    for pair in m.pairs:
        model = m.models[pair[0]]
        if set(pair) <= set(down) and m.is_nvlink(pair) and model and model.nvlink and model.nvlink.bridge:
            bridge = _between(m, "nvlink-missing", pair, model.nvlink.links, COUNTED**2)
            yield replace(bridge, excludes=f"NVLinks of {pair[0]}")


def _counted(m: Machine, i: int) -> Instance:
    lost, wanted, sure = lost_links(m, i), wanted_links(m, i), m.models[i] is not None
    return Instance(
        cause="nvlink-down",
        subject=m.gpu_label(i),
        prior=COUNTED,
        excludes=f"NVLinks of {i}",
        verdict=Verdict.FAIL if sure else Verdict.WARN,
        seen=f"{m.gpu(i).nvlinks.active} links",
        wanted=f"{wanted} links",
        why=f"{lost} of {wanted} NVLinks are not up" + ("" if sure else "; the product is not known"),
        decide=STATES,
        evidence=(f"active {m.gpu(i).nvlinks.active}, ports {m.gpu(i).nvlinks.total}",),
        pairs=tuple(pair for pair in m.pairs_with(i) if m.is_nvlink(pair)),
        direct=sure,
        check="nvlink-links",
    )


def _uneven(m: Machine) -> Iterator[Instance]:
    """Like cards joined by unlike numbers of links, and one GPU or two cards without."""
    if len({gpu.model for gpu in m.seen.gpus}) != 1 or not m.pairs:
        return
    joined = [pair for pair in m.pairs if m.is_nvlink(pair)]
    product = m.models[0].nvlink if m.models[0] else None
    if not joined:
        # Two cards whose name shows that they are sold with a bridge.
        if m.count == 2 and "NVL" in (m.gpu(0).model or "") and m.classes[0, 1] is not None:
            yield _between(m, "nvlink-missing", (0, 1), product.links if product else 0, 3.0)
        return
    if product and product.bridge:
        yield from _bridged(m, joined, product.links)
    else:
        yield from _on_a_board(m, joined)
    counts = Counter(m.links(pair) for pair in joined)
    if len(counts) > 1 and all(sum(bool(set(pair) & set(p)) for p in joined) == 1 for pair in joined):
        for pair in (pair for pair in joined if m.links(pair) < max(counts)):
            yield _between(m, "nvlink-down", pair, max(counts), UNEVEN / 2)
            yield _between(m, "nvlink-missing", pair, max(counts), UNEVEN)


def _bridged(m: Machine, joined: list[Pair], product: int) -> Iterator[Instance]:
    """Every bridge with fewer links than the card has, and two cards left over where others are bridged."""
    counts = {m.links(pair) for pair in joined}
    if product < FOUR_WAY and len(counts) == 1 and max(counts) < product:
        yield from (_between(m, "nvlink-down", pair, product, 10.0) for pair in joined)
    alone = [i for i in range(m.count) if not any(i in pair for pair in joined)]
    if len(alone) == 2:
        yield _between(m, "nvlink-missing", (alone[0], alone[1]), max(counts), 2.0)


def _on_a_board(m: Machine, joined: list[Pair]) -> Iterator[Instance]:
    """Boards connect all GPUs in the same way: a GPU with fewer links, or with none, lost them."""
    most = max(m.links(pair) for pair in joined)
    sums = [sum(m.links(pair) for pair in joined if i in pair) for i in range(m.count)]
    short = [i for i in range(m.count) if sums[i] < max(sums)]
    without = [i for i in short if not sums[i]]
    if len(joined) < len(m.pairs):
        short = without if m.count > 3 else []
    for i in short if len(short) * 2 < m.count else ():
        have = max((m.links(pair) for pair in joined if i in pair), default=0)
        yield _fewer("nvlink-down", m.gpu_label(i), have, most, m.pairs_with(i), UNEVEN, Verdict.FAIL)


def _between(m: Machine, cause: str, pair: Pair, most: int, prior: float) -> Instance:
    return _fewer(cause, m.pair_label(pair), m.links(pair), most, (pair,), prior, Verdict.WARN)


def _fewer(
    cause: str, subject: str, have: int, most: int, pairs: tuple[Pair, ...], prior: float, verdict: Verdict
) -> Instance:
    return Instance(
        cause=cause,
        subject=subject,
        prior=prior,
        excludes=f"NVLinks of {subject}",
        verdict=verdict,
        seen=f"{have} links",
        wanted=f"{most} links, as like cards have",
        why=f"{most - have} NVLinks fewer than between the other cards of this model in this machine",
        decide=STATES,
        pairs=pairs,
        check="nvlink-links",
    )


def _slower(m: Machine, i: int) -> bool:
    """Its best pair reaches less of each link than the best pair of two others."""
    per_link = {p: rate / m.links(p) for p in m.pairs if m.links(p) and (rate := min(_rates(m, p), default=0.0))}
    mine = [rate for pair, rate in per_link.items() if i in pair]
    rest = [rate for pair, rate in per_link.items() if i not in pair]
    return bool(mine and rest) and max(mine) < 0.93 * max(rest)


def _slow_pair(m: Machine, pair: Pair) -> bool:
    rates = _rates(m, pair)
    return bool(rates) and max(rates) < 0.9 * max(rate for other in m.pairs for rate in _rates(m, other))


def _rates(m: Machine, pair: Pair) -> list[float]:
    """What was measured of a pair one way, GB/s."""
    matrix = m.measured.p2p_uni_gb_s
    return [value for i, j in (pair, pair[::-1]) if matrix and (value := matrix[i][j])]


def _by_number(m: Machine, pairs: tuple[Pair, ...], subject: str, part: float) -> Instance:
    links = {pair: max(1, round(m.links(pair) * part)) for pair in pairs}
    one = links[pairs[0]]
    return Instance(
        cause="nvlink-down",
        subject=subject,
        prior=BY_NUMBER / 3,
        change=Change(nvlinks=links),
        excludes=f"NVLinks of {subject}",
        seen=f"as fast as {one} of {m.links(pairs[0])} links",
        wanted=f"{m.links(pairs[0])} links",
        why="these copies are as slow as if some of the NVLinks that the matrix shows were not in use",
        decide=STATES,
        pairs=pairs,
    )


HYPOTHESIS = Hypothesis(
    name="nvlink-count",
    causes=("nvlink-down", "nvlink-missing"),
    title="NVLinks down or missing",
    possible_when="links were counted, the matrix of like cards is uneven, or NVLink copies are slower than the others",
    predicts="copies at the rate of the links that are left; one of eighteen costs six per cent, which only the "
    "count shows",
    prior="50 to 1 if the count was read, 30 to 1 for an uneven matrix, 0.8 % by bandwidth alone",
    never_explains="PCIe pairs, wrong data",
    sources=("Azure/azurehpc-health-checks#162", "gpucheck/knowledge/gpus.yml"),
    instances=instances,
)
