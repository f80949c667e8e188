"""Counting NVLinks: a lost link of eighteen costs six per cent, which no bandwidth shows; the count does."""

from collections import Counter
from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Diagnosis, Rule, finding, listed
from gpucheck.diagnose.machine import Machine
from gpucheck.knowledge import GpuModel
from gpucheck.model.verdict import Verdict

STATES = "nvidia-smi nvlink -s; nvidia-smi nvlink -e"


def judge(case: Case) -> Iterator[Diagnosis]:
    """Per GPU against the product, then the matrix against itself."""
    m = case.machine
    down = [i for i in range(m.count) if _lost(m, i)]
    for i in down:
        yield _down(case, i)
    for i in range(m.count):
        if i not in down and _by_design(m, i):
            yield _design(m, i)
            break
    if not down:
        yield from _uneven(case)
        yield from _unbridged(case)


def _wanted(m: Machine, i: int) -> int | None:
    """Links in use on the product; a bare count of ports where the product is not known."""
    counted, model = m.gpu(i).nvlinks, m.models[i]
    if model and model.nvlink:
        return min(model.nvlink.links, counted.total or model.nvlink.links)
    return counted.total


def _lost(m: Machine, i: int) -> bool:
    active, wanted = m.gpu(i).nvlinks.active, _wanted(m, i)
    if active is None or not wanted or active >= wanted:
        return False
    model = m.models[i]
    if active == 0:
        # A card without a bridge has no link up, which is how it was bought; a board's GPU has no excuse.
        return bool(model and model.nvlink and not model.nvlink.bridge)
    # Half the links is how two of four cards on a longer bridge, or a card on another platform, are wired.
    peers = [m.gpu(j).nvlinks.active for j in range(m.count)]
    alike = len(set(peers)) == 1 and m.count > 1
    return not (alike and _bridged(model) and active * 2 == wanted)


def all_up(m: Machine, i: int) -> bool:
    """Whether the GPU said of its ports, and none that the product uses is down."""
    active, wanted = m.gpu(i).nvlinks.active, _wanted(m, i)
    return active is not None and wanted is not None and active >= wanted


def _bridged(model: GpuModel | None) -> bool:
    return bool(model and model.nvlink and model.nvlink.bridge)


def _by_design(m: Machine, i: int) -> bool:
    """More ports than links in use, and all of those in use are up: 12 of 18 on H100 PCIe and NVL."""
    counted, wanted = m.gpu(i).nvlinks, _wanted(m, i)
    return bool(counted.active and counted.total and wanted and wanted <= counted.active < counted.total)


def _down(case: Case, i: int) -> Diagnosis:
    m = case.machine
    active, wanted = m.gpu(i).nvlinks.active or 0, _wanted(m, i) or 0
    sure = m.models[i] is not None
    mine = [pair for pair in m.pairs if i in pair and m.is_nvlink(pair)]
    return Diagnosis(
        finding(
            RULE.name,
            Verdict.FAIL if sure else Verdict.WARN,
            "nvlink-down",
            "certain" if sure else "possible",
            subject=f"gpu:{m.label(i)}",
            seen=active,
            wanted=wanted,
            unit="links",
            why=f"{wanted - active} of {wanted} NVLinks are not up" + ("" if sure else "; the product is not known"),
            fix=STATES,
            evidence=(f"active {active}, ports {m.gpu(i).nvlinks.total}",),
        ),
        frozenset(mine),
    )


def _design(m: Machine, i: int) -> Diagnosis:
    counted = m.gpu(i).nvlinks
    return Diagnosis(
        finding(
            RULE.name,
            Verdict.PASS,
            "narrow-by-design",
            "certain",
            subject="host",
            seen=counted.active,
            wanted=_wanted(m, i),
            unit="links",
            why=f"{m.gpu(i).model} has {counted.total} ports, of which it uses {counted.active} by design",
        )
    )


def _uneven(case: Case) -> Iterator[Diagnosis]:
    """On a board where every GPU reaches every other the same way, one GPU with fewer links lost them."""
    m = case.machine
    joined = [pair for pair in m.pairs if m.is_nvlink(pair)]
    if m.count < 3 or len(joined) < len(m.pairs):
        yield from _one_without(case, joined)
        return
    counts = Counter(m.links(pair) for pair in joined)
    most = max(counts)
    short = [i for i in range(m.count) if all(m.links(pair) < most for pair in joined if i in pair)]
    rest = [pair for pair in joined if not set(pair) & set(short)]
    if not short or len(short) * 2 >= m.count or any(m.links(pair) != most for pair in rest):
        return
    for i in short:
        have = max(m.links(pair) for pair in joined if i in pair)
        yield _matrix_finding(case, i, have, most)


def _one_without(case: Case, joined: list[tuple[int, int]]) -> Iterator[Diagnosis]:
    """All GPUs but one are joined to all: that one has no links."""
    m = case.machine
    if m.count < 4 or not joined:
        return
    without = [i for i in range(m.count) if not any(i in pair for pair in joined)]
    others = [pair for pair in m.pairs if not set(pair) & set(without)]
    if len(without) * 2 < m.count and without and all(m.is_nvlink(pair) for pair in others):
        for i in without:
            yield _matrix_finding(case, i, 0, max(m.links(pair) for pair in joined))


def _matrix_finding(case: Case, i: int, have: int, most: int) -> Diagnosis:
    m = case.machine
    return Diagnosis(
        finding(
            RULE.name,
            Verdict.FAIL,
            "nvlink-down",
            "likely",
            subject=f"gpu:{m.label(i)}",
            seen=have,
            wanted=most,
            unit="links",
            why="every other pair of this board has more NVLinks than the pairs of this GPU",
            fix=STATES,
        ),
        frozenset(pair for pair in m.pairs if i in pair),
    )


def _unbridged(case: Case) -> Iterator[Diagnosis]:
    """Cards of one model of which some are bridged: two left over may have lost their bridge."""
    m = case.machine
    joined = [pair for pair in m.pairs if m.is_nvlink(pair)]
    alone = [i for i in range(m.count) if not any(i in pair for pair in joined)]
    can = [i for i in alone if _bridged(m.models[i]) and m.models[i] in [m.models[p[0]] for p in joined]]
    if joined and len(can) == 2 and can == alone:
        yield Diagnosis(
            finding(
                RULE.name,
                Verdict.WARN,
                "nvlink-missing",
                "possible",
                subject=m.pair_label((can[0], can[1])),
                seen="no NVLink",
                wanted=f"a bridge, as {listed(joined)} have",
                why="these two cards are of a model that is bridged elsewhere in this machine, and have no link",
                fix="look whether a bridge sits on them; " + STATES,
            )
        )


RULE = Rule(
    name="nvlink-links",
    order=22,
    title="NVLinks counted",
    looks_at="gpus.nvlinks (active, total), gpus.model, the NV# cells of the matrix",
    formula="active links against the product's links in use (12 of 18 on H100 NVL is by design); on a board whose "
    "other pairs are all alike, a GPU with fewer NV# in its row",
    sources=("Azure/azurehpc-health-checks#162", "facts of the products in gpucheck/knowledge/gpus.yml"),
    judge=judge,
)
