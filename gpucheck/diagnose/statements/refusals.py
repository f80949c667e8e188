"""Pairs without peer access by the driver: the product, the platform, or a setting. Slowness is weighed elsewhere."""

from collections.abc import Iterator

from msgspec.structs import replace

from gpucheck.diagnose._names import is_geforce_without_p2p, nvlink_of
from gpucheck.diagnose.hypotheses.rebar_off import small_bar
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.paths import Pair
from gpucheck.diagnose.statements._case import Case, Claim
from gpucheck.diagnose.words import group_label, listed, span
from gpucheck.model.finding import Alternative, Finding
from gpucheck.model.finding.verdict import Verdict

CHECK = "p2p-status"
MATRIX = "nvidia-smi topo -p2p rw shows why: CNS chipset, GNS GPU, TNS topology, DR registry, NS not supported"


def state(case: Case) -> Iterator[Finding]:
    """Pairs without peer access, one finding per reason."""
    m = case.machine
    window = [p for p in m.pairs if m.access[p] is None and case.world.way(p) == "staged" and small_bar(m, p)]
    if window:
        yield Claim("bar1", Verdict.PASS, "rebar-off", "possible").finding(
            seen="BAR1 256 MiB",
            why="peers would see only a 256 MiB window of the memory; a driver with P2P needs Resizable BAR here",
        )
    groups: dict[tuple[Claim, str], list[Pair]] = {}
    for pair in m.pairs:
        if m.access[pair] is False and not m.is_nvlink(pair):
            groups.setdefault(_reason(m, pair), []).append(pair)
    for (claim, why), pairs in groups.items():
        if claim.cause in ("p2p-unsupported-pair", None):
            # What something else explains, or what costs no speed, is not the missing P2P's doing.
            pairs = [pair for pair in pairs if pair not in case.blamed]
            if not pairs or _costs_nothing(case, pairs):
                continue
        yield _finding(case, claim, why, pairs)


def _reason(m: Machine, pair: Pair) -> tuple[Claim, str]:
    """The reason of a pair without peer-to-peer, also as text."""
    status, models = m.status(pair), [m.gpu(i).model for i in pair]
    if status == "DR":
        words = "the driver's registry switches peer-to-peer off (NVreg_RegistryDwords or a driver setting)"
        return Claim(CHECK, Verdict.WARN, "leftover-environment", "likely"), words
    if all(is_geforce_without_p2p(model) for model in models):
        words = "NVIDIA's driver has no P2P over PCIe on this GeForce generation: copies are staged through the host"
        return Claim(CHECK, Verdict.PASS, "geforce-p2p-disabled", "certain"), words
    if m.mesh and not m.mesh[pair]:
        words = "each GPU of this board has its NVLinks to some of the others, and these two have none: they are staged"
        return Claim(CHECK, Verdict.PASS, "expected-limit", "likely"), words
    chipset = "; status CNS names the chipset" + (", here the emulated one" if m.host.virtual else "")
    chipset = chipset if status == "CNS" else ""
    if m.host.virtual:
        words = f"the virtual machine hides the PCIe path between these GPUs, so P2P is not offered{chipset}"
        verdict = Verdict.PASS if _is_the_offer(m) else Verdict.WARN
        return Claim(CHECK, verdict, "vm-no-p2p", "likely"), words
    if None not in models and models[0] != models[1]:
        words = "these models differ, and the driver offers no P2P between them"
        return Claim(CHECK, Verdict.PASS, "p2p-unsupported-pair", "likely"), words
    if status == "TNS" or _only_far_refused(m, pair):
        words = "the path leaves the socket, and the driver offers no P2P across it: copies are staged"
        return Claim(CHECK, Verdict.PASS, "cross-socket", "likely"), words
    if small_bar(m, pair):
        words = "peers see only a 256 MiB window of the memory (Resizable BAR off), and P2P is not offered"
        return Claim(CHECK, Verdict.WARN, "rebar-off", "likely"), words
    words = "P2P is not offered, and the reason is not known" + (f" (status {status}{chipset})" if status else "")
    return Claim(CHECK, Verdict.WARN), words


def _is_the_offer(m: Machine) -> bool:
    """An instance without P2P on any pair, of cards that are sold without NVLink: its type is made so."""
    nvlink = any(m.is_nvlink(pair) for pair in m.pairs) or any(nvlink_of(gpu.model) for gpu in m.seen.gpus)
    return not nvlink and all(m.access[pair] is False for pair in m.pairs)


def _only_far_refused(m: Machine, pair: Pair) -> bool:
    """Pairs inside a node have P2P, pairs across do not; without classes, islands of equal GPUs on several sockets."""
    if not m.granted:
        return False
    if m.crosses_nodes(pair):
        return not any(m.crosses_nodes(other) and not m.is_nvlink(other) for other in m.granted)
    if m.crosses_nodes(pair) is False:
        return False
    island = {i: {j for other in m.granted if i in other for j in other} | {i} for i in range(m.count)}
    whole = all(island[j] == island[i] for i in island for j in island[i])
    return whole and island[pair[0]] != island[pair[1]] and m.host.sockets != 1


def _costs_nothing(case: Case, pairs: list[Pair]) -> bool:
    """Staged pairs are as fast as those with P2P: then the missing P2P is not worth a word."""
    without = [rate for pair in pairs if (rate := case.one_way(pair))]
    having = [rate for pair in case.machine.granted if (rate := case.one_way(pair))]
    return bool(without and having) and max(without) >= 0.95 * max(having)


def _finding(case: Case, claim: Claim, why: str, pairs: list[Pair]) -> Finding:
    m = case.machine
    rates = [rate for pair in pairs if (rate := case.one_way(pair))]
    usual = [p.median for n, p in case.fits if n.quantity == "p2p-one-way" and (n.a, n.b) in pairs]
    staged = f"; staged copies reach {span(rates)} GB/s one way" if rates else ""
    staged += f", {span(usual)} is usual" if usual else ""
    found = claim.finding(
        subject="host" if len(pairs) == len(m.pairs) else group_label(m, pairs),
        seen=f"no P2P on {len(pairs)} of {len(m.pairs)} pairs",
        wanted=None if claim.verdict is Verdict.PASS else "P2P",
        why=why + staged + _same(case, pairs),
        fix="" if claim.verdict is Verdict.PASS else MATRIX,
        evidence=[f"pairs: {listed(pairs)}"]
        + [f"P2P status {word}" for word in sorted({str(m.status(pair)) for pair in pairs} - {"None"})],
    )
    others = tuple(
        Alternative(cause=cause, probability=0.2, would_show=shows)
        for cause, shows, applies in (
            ("vm-no-p2p", "the same cards on bare metal: nvidia-smi topo -p2p rw", bool(m.host.virtual)),
            ("rebar-off", "nvidia-smi -q -d MEMORY: BAR1 is 256 MiB", any(small_bar(m, pair) for pair in pairs)),
        )
        if applies and claim.cause == "geforce-p2p-disabled"
    )
    return replace(found, alternatives=others)


def _same(case: Case, pairs: list[Pair]) -> str:
    """P2P asked for and switched off give the same number: it was not in use."""
    both = [(a, b) for p in pairs if (a := case.one_way(p)) and (b := case.one_way(p, "staged-one-way"))]
    equal = bool(both) and all(0.9 < a / b < 1.1 for a, b in both)
    return "; with P2P switched off the numbers are the same" if equal else ""
