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
MATRIX = "nvidia-smi topo -p2p rw shows why: CNS chipset, GNS GPU, TNS topology, DR registry, NS not supported"
AS_FAST = 0.95  # of the pairs with peer access: then the missing access costs nothing


def rule(case: Case) -> Iterator[Finding]:
    """One finding for each reason, and what was granted although the stock driver never grants it."""
    m = case.machine
    groups: dict[tuple[Claim, str], list[Pair]] = {}
    for pair in m.pairs:
        if m.access[pair] is False and not is_joined(m, pair):
            groups.setdefault(_reason(m, pair), []).append(pair)
    for (claim, why), pairs in groups.items():
        if claim.cause not in (None, "p2p-unsupported-pair") or not _costs_nothing(m, pairs):
            yield _finding(m, claim, why, pairs)
    granted = [pair for pair in m.granted if not m.joined(pair)]
    if granted and m.is_geforce and not _compared(m):
        yield Claim(CHECK, Verdict.UNKNOWN, "false-p2p-grant", "possible").finding(
            seen=f"P2P granted on {len(granted)} of {len(m.pairs)} pairs",
            wanted="data that was compared",
            why="NVIDIA's driver has no P2P over PCIe on this GeForce generation: the driver is patched or the grant "
            "is false, and no data was compared",
            fix="gpucheck bandwidth compares every byte that arrives",
        )


def _compared(m: Machine) -> bool:
    seen = m.measured
    checked = any(row.wrong is not None for row in seen.collectives)
    return seen.integrity_bad_pairs is not None or bool(seen.damaged or seen.damage or seen.bytes_compared or checked)


def _reason(m: Machine, pair: Pair) -> tuple[Claim, str]:
    """Return the reason of a pair without peer access, also as text."""
    status, names = m.status(pair), [m.gpu(i).model for i in pair]
    small = ("rebar-off",) if m.has_small_bar(pair) else ()
    if status == "DR":
        words = "the registry of the driver disables peer access (NVreg_RegistryDwords or a driver setting)"
        return Claim(CHECK, Verdict.WARN, "leftover-environment", "likely"), words
    if all(map(is_geforce_without_p2p, names)):
        words = "NVIDIA's driver has no P2P over PCIe on this GeForce generation: copies are staged through the host"
        others = (*(("vm-no-p2p",) if m.host.virtual else ()), *small)
        return Claim(CHECK, Verdict.PASS, "geforce-p2p-disabled", "certain", others), words
    if m.mesh and not m.mesh[pair]:
        words = "each GPU of this board has its NVLinks to some of the others, and these two have none: they are staged"
        return Claim(CHECK, Verdict.PASS, "expected-limit", "likely"), words
    chipset = (
        f"; status CNS names the chipset{', here the emulated one' if m.host.virtual else ''}"
        if status == "CNS"
        else ""
    )
    if status == "TNS":
        words = "the path leaves the socket, and the driver offers no P2P across it: copies are staged"
        return Claim(CHECK, Verdict.PASS, "cross-socket", "likely"), words
    if m.host.virtual:
        words = f"the virtual machine hides the PCIe path between these GPUs, so P2P is not offered{chipset}"
        # An instance without P2P on any pair, of cards that are sold without NVLink: its type is made so.
        offer = (
            not any(map(m.links, m.pairs))
            and not any(map(nvlink_of, names))
            and all(a is False for a in m.access.values())
        )
        return Claim(CHECK, Verdict.PASS if offer else Verdict.WARN, "vm-no-p2p", "likely"), words
    if None not in names and names[0] != names[1]:
        words = "these models differ, and the driver offers no P2P between them"
        return Claim(CHECK, Verdict.PASS, "p2p-unsupported-pair", "likely"), words
    if _only_far_refused(m, pair):
        words = "the path leaves the socket, and the driver offers no P2P across it: copies are staged"
        return Claim(CHECK, Verdict.PASS, "cross-socket", "likely"), words
    if small:
        words = "peers see only a 256 MiB window of the memory (Resizable BAR off), and P2P is not offered"
        return Claim(CHECK, Verdict.WARN, "rebar-off", "likely"), words
    words = "P2P is not offered, and the reason is not known" + (f" (status {status}{chipset})" if status else "")
    return Claim(CHECK, Verdict.UNKNOWN if m.host.virtual is None else Verdict.WARN), words


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


def _finding(m: Machine, claim: Claim, why: str, pairs: list[Pair]) -> Finding:
    rates = [min(values) for pair in pairs if (values := m.one_way(pair))]
    usual = [found.gb_s for pair in pairs if (found := staged(m, pair))]
    through = f"; staged copies reach {span(rates)} GB/s one way" if rates else ""
    through += f", {span(usual)} is usual" if rates and usual else ""
    return claim.finding(
        subject="host" if len(pairs) == len(m.pairs) else m.subject(pairs),
        seen=f"no P2P on {len(pairs)} of {len(m.pairs)} pairs",
        wanted=None if claim.verdict is Verdict.PASS else "P2P",
        why=why + through,
        fix="" if claim.verdict is Verdict.PASS else MATRIX,
        evidence=(
            f"pairs: {listed(pairs)}",
            *(f"P2P status {word}" for word in sorted({str(m.status(pair)) for pair in pairs} - {"None"})),
        ),
    )
