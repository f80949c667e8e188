"""Pairs slow only where they leave a group of GPUs: the group's way up, not the GPUs."""

from collections.abc import Iterable, Iterator

from gpucheck.diagnose._rule import Case, Confidence, Diagnosis, Rule, finding, listed, middle, span
from gpucheck.diagnose.machine import NEAR, Machine, Pair
from gpucheck.diagnose.rates import Rate
from gpucheck.diagnose.rules._links import FITS_FROM, FITS_TO, narrowed, slowed
from gpucheck.diagnose.rules._suspects import TELL_APART
from gpucheck.diagnose.rules.uplink_state import shared_ports
from gpucheck.knowledge import pcie_gb_s
from gpucheck.model.verdict import Verdict

FAST = 0.80
FAR_BELOW = 0.50
BELOW_CLASS = 0.70
Choice = tuple[str, Confidence, str]


def judge(case: Case) -> Iterator[Diagnosis]:
    """Groups by switch where the matrix tells, else by what is fast together."""
    m = case.machine
    rates = {p: case.rates.all[p] for p in case.open(case.rates.all) if not m.is_nvlink(p) and m.direct[p] is not False}
    groups = islands(m, [pair for pair in m.pairs if m.classes[pair] in NEAR])
    if len([group for group in groups if len(group) > 1]) == 0:
        groups = _by_speed(m, rates)
    yield from _judge_groups(case, rates, groups)
    yield from _by_class_only(case)


def islands(m: Machine, joined: Iterable[Pair]) -> list[frozenset[int]]:
    """GPUs connected by these pairs, as sets; every GPU is in one."""
    group = {i: frozenset([i]) for i in range(m.count)}
    for i, j in joined:
        whole = group[i] | group[j]
        group.update(dict.fromkeys(whole, whole))
    return sorted(set(group.values()), key=min)


def _by_speed(m: Machine, rates: dict[Pair, Rate]) -> list[frozenset[int]]:
    """Without a matrix: two or more groups, each fast inside, with nothing fast between them."""
    if not rates or any(m.classes[pair] for pair in rates):
        return []
    most = max(rate.gb_s for rate in rates.values())
    fast = [pair for pair, rate in rates.items() if rate.gb_s >= FAST * most]
    groups = islands(m, fast)
    inside = [pair for pair in rates if any(set(pair) <= group for group in groups)]
    complete = all(pair in fast for pair in inside)
    return groups if complete and sum(len(group) > 1 for group in groups) >= 2 else []


def _judge_groups(case: Case, rates: dict[Pair, Rate], groups: list[frozenset[int]]) -> Iterator[Diagnosis]:
    m = case.machine
    inside = [rate for pair, rate in rates.items() if any(set(pair) <= group for group in groups)]
    if len(groups) < 2 or not inside or any(rate.level == "bad" for rate in inside):
        return
    usual = middle(rate.gb_s for rate in inside)
    crossing = {g: [p for p in rates if len(g & set(p)) == 1] for g in groups}
    best = {cls: max(r.gb_s for p, r in rates.items() if m.classes[p] == cls) for cls in {m.classes[p] for p in rates}}
    slow = [g for g, pairs in crossing.items() if pairs and all(_is_slow(m, rates[p], usual, best) for p in pairs)]
    if all(rates[pair].level == "good" for group in slow for pair in crossing[group]):
        return
    # One slow way up makes every group's pairs with it slow; only the group without a fast way out is to blame.
    blamed = [group for group in slow if len(group) > 1] or slow
    pairs = sorted({pair for group in slow for pair in crossing[group]})
    if not pairs:
        return
    cause, confidence, words = _why(case, pairs, [rates[pair] for pair in pairs], usual)
    one = len(blamed) == 1
    names = " and ".join("{" + ", ".join(map(str, sorted(group))) + "}" for group in blamed[:4])
    where = f"the way up of GPUs {names}" if one else f"the way up of one or more of the groups {names}"
    bad = any(rates[pair].level == "bad" for pair in pairs) or all(rates[p].goal is None for p in pairs)
    yield Diagnosis(
        finding(
            RULE.name,
            Verdict.FAIL if bad and cause in ("uplink-downgraded", "iommu-translation") else Verdict.WARN,
            cause,
            confidence,
            subject="host",
            seen=f"{span(rates[pair].gb_s for pair in pairs)} GB/s between groups",
            wanted=f"{usual:.3g} GB/s as inside them",
            why=f"only pairs that use {where} are slow; pairs below one switch are fine, so no GPU's own link is. "
            f"{words}",
            fix=f"lspci -tv; lspci -vv of each port above these GPUs; {TELL_APART}",
            evidence=[f"slow: {listed(pairs)}"],
        ),
        frozenset(pairs),
    )


def _is_slow(m: Machine, rate: Rate, usual: float, best: dict[str | None, float]) -> bool:
    """Below its own expectation or far below its class; without one, far below what is usual inside the groups."""
    if m.classes[rate.pair] is not None and rate.gb_s < BELOW_CLASS * best[m.classes[rate.pair]]:
        return True
    if rate.level != "unknown" and m.classes[rate.pair] is not None:
        return rate.level in ("low", "bad")
    return m.crosses_nodes(rate.pair) is not True and rate.gb_s < FAR_BELOW * usual


def _why(case: Case, pairs: list[Pair], rates: list[Rate], usual: float) -> Choice:
    m = case.machine
    value = middle(rate.gb_s for rate in rates)
    ports = shared_ports(m)
    complete = bool(ports) and all(
        port.read == "load" and port.gen and port.width and not narrowed(port) and not slowed(port) for port in ports
    )
    if complete and m.measured.method.direction == "write":
        words = "The uplinks run at full rate: writes between these switches collapse. Compare with reads"
        return "switch-write-collapse", "likely", words
    if m.translating:
        return "iommu-translation", "likely", "Copies between switches pass the IOMMU, which translates them"
    far = [p for p in case.rates.all if p not in pairs and m.crosses_nodes(p) and case.rates.all[p].level == "good"]
    untold = m.classes[pairs[0]] is None and (m.host.sockets or 0) > 1
    below_cpu = m.cpu is not None and m.cpu.link is not None and all(rate.level == "bad" for rate in rates)
    if not far and not below_cpu and (untold or all(m.crosses_nodes(pair) for pair in pairs)):
        return "cross-socket", "likely", "They cross the link between sockets, and this CPU is slow at that"
    fits = _fits(value, usual)
    words = f"{value:.3g} GB/s fits {fits}" if fits else f"{value:.3g} GB/s fits no lower link rate"
    if complete:
        return "expected-limit", "possible", f"{words}, but the uplinks run at full rate: the root complex is the limit"
    within = not all(m.crosses_nodes(pair) for pair in pairs)
    sure: Confidence = "likely" if fits and within and m.classes[pairs[0]] is not None else "possible"
    return "uplink-downgraded", sure, words


def _fits(value: float, usual: float) -> str:
    """The link of x16 or less that is clearly slower than the usual one and carries the value."""
    for lanes in (16, 8, 4):
        for generation in (1, 2, 3, 4, 5):
            raw = pcie_gb_s(generation, lanes)
            if raw < usual and FITS_FROM * raw <= value <= FITS_TO * raw:
                return f"Gen{generation} x{lanes} ({raw:g} GB/s raw)"
    return ""


def _by_class_only(case: Case) -> Iterator[Diagnosis]:
    """Ranges by class without a matrix: far classes of the same node bad while near ones are good."""
    spans = case.rates.class_only()
    near = [rate for cls, rate in spans.items() if cls in NEAR]
    far = {cls: rate for cls, rate in spans.items() if cls in ("PHB", "NODE") and rate.level in ("low", "bad")}
    if not far or not near or any(rate.level in ("low", "bad") for rate in near):
        return
    usual = middle(rate.gb_s for rate in near)
    cause, confidence, words = _why(case, [(0, 1)], list(far.values()), usual)
    values = [rate.gb_s for rate in far.values()]
    yield Diagnosis(
        finding(
            RULE.name,
            Verdict.FAIL if any(rate.level == "bad" for rate in far.values()) else Verdict.WARN,
            cause,
            "possible" if confidence == "possible" else "likely",
            subject="host",
            seen=f"{span(values)} GB/s on {', '.join(far)} pairs",
            wanted=f"{usual:.3g} GB/s as on near pairs",
            why=f"only pairs that leave their switch are slow, so no GPU's own link is. {words}",
            fix=f"lspci -tv; lspci -vv of each port above the switches; {TELL_APART}",
        )
    )


RULE = Rule(
    name="slow-uplink",
    order=50,
    title="Only pairs across one way up slow",
    looks_at="matrix (PIX and PXB form groups), pairs between groups, by_class, uplinks, host.iommu, method.direction",
    formula="pairs inside groups good, every pair that leaves a group below its warning limit; the value is matched "
    "with "
    "0.60 to 0.97 x raw of lower links; with uplinks read complete under load and writes measured it is the switch",
    sources=("rtx6kpro wrx90-cpayne-2switch-flat", "rtx6kpro pcie-bandwidth"),
    cases=("rtx6kpro wrx90, uplink forced to generation 2", "rtx6kpro wrx90 and Turin machines (healthy)"),
    judge=judge,
)
