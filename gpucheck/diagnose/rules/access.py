"""Pairs without peer access by the driver: the product, the platform, or a setting."""

from collections.abc import Iterator

from gpucheck.diagnose._case import Case, Claim, listed, span
from gpucheck.diagnose._names import is_geforce_without_p2p, nvlink_of
from gpucheck.diagnose.healthy import staged
from gpucheck.diagnose.machine import Machine, Pair
from gpucheck.diagnose.rules.nvlinks import is_joined
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict

CHECK = "p2p-status"
# Reasons that are nothing to report where the copies are as fast as those with peer access.
MAY_COST_NOTHING = (
    "access.models-differ",
    "access.status-unexplained",
    "access.chipset-unexplained",
    "access.reason-unknown",
)
AS_FAST = 0.95  # of the pairs with peer access: then the missing access costs nothing


def rule(case: Case) -> Iterator[Finding]:
    """One finding for each reason, and what was granted although the stock driver never grants it."""
    m = case.machine
    groups: dict[tuple[Claim, str, str | None], list[Pair]] = {}
    for pair in m.pairs:
        if m.access[pair] is False and not is_joined(m, pair):
            claim, code = _reason(m, pair)
            status = m.status(pair) if code == "access.status-unexplained" else None
            groups.setdefault((claim, code, status), []).append(pair)
    for (claim, code, status), pairs in groups.items():
        if code not in MAY_COST_NOTHING or not _costs_nothing(m, pairs):
            yield _finding(m, claim, code, {"status": status} if status else {}, pairs)
    granted = [pair for pair in m.granted if not m.joined(pair)]
    if granted and m.is_geforce and not _compared(m):
        yield Claim(CHECK, Verdict.UNKNOWN).finding(
            "access.grant-unchecked",
            seen=f"P2P granted on {len(granted)} of {len(m.pairs)} pairs",
            wanted="data that was compared",
        )


def _compared(m: Machine) -> bool:
    seen = m.measured
    checked = any(row.wrong is not None for row in seen.collectives)
    return seen.integrity_bad_pairs is not None or bool(seen.damaged or seen.damage or seen.bytes_compared or checked)


def _reason(m: Machine, pair: Pair) -> tuple[Claim, str]:
    """Return the reason of a pair without peer access: verdict and other causes, and the code."""
    status, names = m.status(pair), [m.gpu(i).model for i in pair]
    small = ("rebar-off",) if m.has_small_bar(pair) else ()
    fine, slow = Claim(CHECK, Verdict.PASS), Claim(CHECK, Verdict.WARN)
    if status == "DR":
        return slow, "access.registry-forbids"
    if all(map(is_geforce_without_p2p, names)):
        others = (*(("vm-no-p2p",) if m.host.virtual else ()), *small)
        return fine._replace(others=others), "access.geforce-staged"
    if m.mesh and not m.mesh[pair]:
        return fine, "access.mesh-staged"
    if status == "TNS":
        return fine, "access.socket-staged"
    if m.host.virtual:
        # An instance without P2P on any pair, of cards that are sold without NVLink: its type is made so.
        offer = (
            not any(map(m.links, m.pairs))
            and not any(map(nvlink_of, names))
            and all(a is False for a in m.access.values())
        )
        code = "access.guest-emulates-chipset" if status == "CNS" else "access.guest-hides-path"
        return fine if offer else slow, code
    if None not in names and names[0] != names[1]:
        return fine, "access.models-differ"
    if _only_far_refused(m, pair):
        return fine, "access.socket-staged"
    if small:
        return slow, "access.small-window"
    unexplained = Claim(CHECK, Verdict.UNKNOWN) if m.host.virtual is None else slow
    if status == "CNS":
        return unexplained, "access.chipset-unexplained"
    return unexplained, "access.status-unexplained" if status else "access.reason-unknown"


def _only_far_refused(m: Machine, pair: Pair) -> bool:
    """Return whether pairs inside a node have P2P and pairs across do not; without classes, islands of equal GPUs."""
    if not m.granted:
        return False
    if m.crosses(pair) is not None:
        return bool(m.crosses(pair)) and not any(m.crosses(other) and not m.links(other) for other in m.granted)
    island = {i: {j for other in m.granted if i in other for j in other} | {i} for i in range(m.count)}
    whole = all(island[j] == island[i] for i in island for j in island[i])
    return whole and island[pair[0]] != island[pair[1]] and m.host.sockets != 1


def _costs_nothing(m: Machine, pairs: list[Pair]) -> bool:
    """Return whether staged pairs are as fast as those with P2P."""
    without = [min(rates) for pair in pairs if (rates := m.one_way(pair))]
    having = [min(rates) for pair in m.granted if (rates := m.one_way(pair))]
    return bool(without and having) and max(without) >= AS_FAST * max(having)


def _finding(m: Machine, claim: Claim, code: str, values: dict[str, str], pairs: list[Pair]) -> Finding:
    rates = [min(ways) for pair in pairs if (ways := m.one_way(pair))]
    usual = [found.gb_s for pair in pairs if (found := staged(m, pair))]
    reached = f"staged copies: {span(rates)} GB/s one way{f', usual {span(usual)}' if usual else ''}"
    return claim.finding(
        code,
        subject="host" if len(pairs) == len(m.pairs) else m.subject(pairs),
        seen=f"no P2P on {len(pairs)} of {len(m.pairs)} pairs",
        wanted=None if claim.verdict is Verdict.PASS else "P2P",
        evidence=(
            f"pairs: {listed(pairs)}",
            *(f"P2P status {word}" for word in sorted({str(m.status(pair)) for pair in pairs} - {"None"})),
            *((reached,) if rates else ()),
        ),
        **values,
    )
