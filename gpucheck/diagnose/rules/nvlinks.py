"""NVLinks as they were read: counted, in an uneven matrix of equal cards, and denied by the driver."""

from collections.abc import Iterator

from gpucheck.diagnose._case import Case, Claim, listed
from gpucheck.diagnose.machine import FASTEST_SLOT, Machine, Pair
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict
from gpucheck.printable import counted

CHECK = "nvlink-links"
FOUR_WAY = 12  # links of cards that come with a four-way bridge too, half of them to each neighbor


def rule(case: Case) -> Iterator[Finding]:
    """Lost links, links that are not used by design, an uneven matrix, and denied NVLink."""
    m = case.machine
    lost = {i: count for i in range(m.count) if (count := _lost(m, i))}
    for i, count in lost.items():
        yield _counted(m, i, count)
    yield from _dark(m)
    yield from _by_design(m)
    if not lost and m.pairs and len({gpu.model for gpu in m.seen.gpus}) == 1:
        yield from _uneven(m)
    yield from _denied(m)


def _wanted(m: Machine, i: int) -> int | None:
    """Return the links in use on the product; the count of ports if the product is not known."""
    counted, model = m.gpu(i).nvlinks, m.models[i]
    if model and model.nvlink:
        return min(model.nvlink.links, counted.total or model.nvlink.links)
    return counted.total


def _lost(m: Machine, i: int) -> int:
    """Return how many links of GPU i should be up and are not; 0 if that is by design or not known."""
    active, wanted, model = m.gpu(i).nvlinks.active, _wanted(m, i), m.models[i]
    if active is None or not wanted or active >= wanted:
        return 0
    product = model.nvlink if model else None
    if active == 0 and (m.host.virtual or not product or product.bridge):
        return 0  # a card without a bridge is a normal product
    alike = len({gpu.nvlinks.active for gpu in m.seen.gpus}) == 1 and m.count > 1
    return (
        0 if alike and product and product.bridge and wanted >= FOUR_WAY and active * 2 == wanted else wanted - active
    )


def _counted(m: Machine, i: int, lost: int) -> Finding:
    gpu, known = m.gpu(i), m.models[i] is not None
    bridge = bool((model := m.models[i]) and model.nvlink and model.nvlink.bridge)
    verdict = Verdict.FAIL if known else Verdict.WARN
    return Claim(CHECK, verdict, others=("nvlink-missing",) if bridge else ()).finding(
        "links.nvlinks-lost" if known else "links.nvlinks-lost-of-ports",
        subject=m.gpu_label(i),
        seen=f"{gpu.nvlinks.active} links",
        wanted=f"{_wanted(m, i)} links",
        lost=lost,
        total=_wanted(m, i),
        evidence=(f"active {gpu.nvlinks.active}, ports {gpu.nvlinks.total}",),
    )


def _dark(m: Machine) -> Iterator[Finding]:
    """GPUs of an unknown model without any NVLink up: a fault on a board with NVSwitches, normal without a bridge."""
    dark = [gpu for gpu in m.seen.gpus if gpu.nvlinks.total and gpu.nvlinks.active == 0 and gpu.model is None]
    if dark:
        seen = f"0 of {dark[0].nvlinks.total} NVLinks up on {counted(len(dark), 'GPU')}"
        yield Claim(CHECK, Verdict.UNKNOWN).finding("links.nvlinks-dark", seen=seen)


def _by_design(m: Machine) -> Iterator[Finding]:
    for i, gpu in enumerate(m.seen.gpus):
        active, total, wanted = gpu.nvlinks.active, gpu.nvlinks.total, _wanted(m, i)
        if active and total and wanted and wanted <= active < total:
            yield Claim(CHECK, Verdict.PASS).finding(
                "links.nvlinks-by-design",
                seen=active,
                wanted=wanted,
                unit="links",
                model=gpu.model,
                ports=total,
                active=active,
            )
            break
    bare = [
        i
        for i in range(m.count)
        if m.gpu(i).nvlinks.active == 0 and (n := m.models[i]) and n.nvlink and n.nvlink.bridge
    ]
    if bare and not (m.count == 2 and _is_sold_bridged(m)):
        yield Claim(CHECK, Verdict.PASS).finding(
            "links.bridge-missing", subject="host" if len(bare) > 1 else m.gpu_label(bare[0]), seen=0, unit="links"
        )


def _is_sold_bridged(m: Machine) -> bool:
    return "NVL" in (m.gpu(0).model or "")


def _uneven(m: Machine) -> Iterator[Finding]:
    """Equal cards joined by unequal numbers of links, and one GPU or two cards without."""
    joined = [pair for pair in m.pairs if m.links(pair)]
    product = m.models[0].nvlink if m.models[0] else None
    if None in m.classes.values() or m.mesh:
        return  # a pair that was not read may have any number
    if not joined:
        yield from _no_nvlink(m)
        return
    most = max(map(m.links, joined))
    if product and product.bridge:
        yield from _bridges(m, joined, most, product.links)
        return
    alone = [i for i in range(m.count) if not any(i in pair for pair in joined)]
    if len({m.links(pair) for pair in joined}) > 1 and all(sum(bool({*a} & {*b}) for b in joined) == 1 for a in joined):
        for pair in joined:
            if m.links(pair) < most:
                yield _fewer(m, "nvlink-missing", [pair], m.links(pair), most)
        return
    sums = [sum(m.links(pair) for pair in joined if i in pair) for i in range(m.count)]
    whole = len(joined) == len(m.pairs)
    short = [i for i in range(m.count) if sums[i] < max(sums)] if whole else alone if m.count > 3 else []
    for i in short if len(short) * 2 < m.count else ():
        mine = [pair for pair in m.pairs if i in pair]
        yield _fewer(m, "nvlink-down", mine, sums[i], max(sums), Verdict.FAIL, m.gpu_label(i))


def _no_nvlink(m: Machine) -> Iterator[Finding]:
    """No pair has NVLink by the matrix, and the product is sold on boards or in pairs that have it."""
    product = m.models[0].nvlink if m.models[0] else None
    fastest = max((rate for pair in m.pairs for rate in m.one_way(pair)), default=0.0)
    if product and not product.bridge and fastest <= FASTEST_SLOT:
        yield _unused(m, copied=bool(fastest))
    elif m.count == 2 and _is_sold_bridged(m):
        yield _fewer(m, "nvlink-missing", [(0, 1)], 0, product.links if product else 0)


def _unused(m: Machine, *, copied: bool) -> Finding:
    """A matrix without NVLink, of a product that is sold on boards with NVLink only.

    ``topo -mp``, MIG and some guests show none; copies at the rate of PCIe decide.
    """
    cause = "fabric-manager-down" if m.is_nvswitch else "nvlink-down"
    verdict = Verdict.FAIL if copied and not m.host.virtual else Verdict.UNKNOWN
    return Claim(CHECK, verdict, cause, "likely", ("vm-no-p2p", "mig-enabled")).finding(
        "links.nvlink-unused" if copied else "links.nvlink-unseen",
        seen="no NVLink between any two GPUs",
        wanted="NVLink",
        model=m.gpu(0).model,
    )


def _bridges(m: Machine, joined: list[Pair], most: int, links: int) -> Iterator[Finding]:
    """Bridged pairs with fewer links than others or the product, and two cards without a bridge."""
    uneven = len({m.links(pair) for pair in joined}) > 1
    wanted = most if uneven or links >= FOUR_WAY else links
    for pair in joined:
        if m.links(pair) < wanted:
            yield _fewer(m, "nvlink-down", [pair], m.links(pair), wanted)
    alone = [i for i in range(m.count) if not any(i in pair for pair in joined)]
    if len(alone) == 2:
        yield _fewer(m, "nvlink-missing", [(alone[0], alone[1])], 0, most)


def _fewer(
    m: Machine, cause: str, pairs: list[Pair], have: int, most: int, verdict: Verdict = Verdict.WARN, subject: str = ""
) -> Finding:
    others = {"nvlink-down": ("nvlink-missing",), "nvlink-missing": ("nvlink-down",)}[cause] if len(pairs) == 1 else ()
    return Claim(CHECK, verdict, cause, "likely", others).finding(
        "links.nvlinks-fewer",
        subject=subject or m.subject(pairs),
        seen=f"{have} links",
        wanted=f"{most} links",
        missing=most - have,
    )


def _denied(m: Machine) -> Iterator[Finding]:
    """NVLink that is there, and peer access that the driver denies."""
    denied = [pair for pair in m.pairs if m.access[pair] is False and is_joined(m, pair)]
    if not denied:
        return
    yield Claim("p2p-status", Verdict.FAIL, others=() if m.is_nvswitch else ("nvlink-down",)).finding(
        "access.nvswitch-denied" if m.is_nvswitch else "access.nvlink-denied",
        subject=m.subject(denied),
        seen=f"no P2P on {len(denied)} of {len(m.pairs)} pairs",
        wanted="copies over NVLink",
        evidence=(
            f"pairs: {listed(denied)}",
            *(f"P2P status {word}" for word in sorted({str(m.status(p)) for p in denied} - {"None"})),
        ),
    )


def is_joined(m: Machine, pair: Pair) -> bool:
    """Return whether NVLink joins a pair by the matrix, or by the product if the matrix shows a fabric that is down."""
    return bool(m.links(pair)) or bool(m.is_nvswitch and m.seen.matrix)
