"""Pairs without peer-to-peer: whether that is the product, the platform, or a fault. Slowness is judged elsewhere."""

from collections.abc import Iterator
from typing import NamedTuple

from gpucheck.diagnose._names import is_geforce_without_p2p
from gpucheck.diagnose._rule import Case, Confidence, Diagnosis, Rule, finding, group_label, listed, middle, span
from gpucheck.diagnose.machine import Machine, Pair
from gpucheck.model.verdict import Verdict

MATRIX = "nvidia-smi topo -p2p rw shows why: CNS chipset, GNS GPU, TNS topology, DR registry, NS not supported"
AMPERE = 8.0


class Reason(NamedTuple):
    """Why a pair has no peer-to-peer."""

    verdict: Verdict
    cause: str | None
    confidence: Confidence | None
    words: str


def judge(case: Case) -> Iterator[Diagnosis]:
    """Refused pairs by reason, one finding each."""
    m = case.machine
    refused = [pair for pair in m.pairs if m.direct[pair] is False and not m.is_nvlink(pair)]
    groups: dict[Reason, list[Pair]] = {}
    for pair in refused:
        groups.setdefault(_reason(m, pair), []).append(pair)
    for reason, pairs in groups.items():
        if reason.cause in ("p2p-unsupported-pair", None):
            # What something else explains, or what costs no speed, is not the missing P2P's doing.
            pairs = [pair for pair in pairs if pair not in case.explained]
            if not pairs or _costs_nothing(case, pairs):
                continue
        yield _finding(case, reason, pairs)


def _reason(m: Machine, pair: Pair) -> Reason:
    status, models = m.status(pair), [m.gpu(i).model for i in pair]
    if status == "DR":
        words = "the driver's registry switches peer-to-peer off (NVreg_RegistryDwords or a driver setting)"
        return Reason(Verdict.WARN, "leftover-environment", "likely", words)
    if all(is_geforce_without_p2p(model) for model in models):
        words = "NVIDIA's driver has no P2P over PCIe on this GeForce generation: copies are staged through the host"
        return Reason(Verdict.PASS, "geforce-p2p-disabled", "certain" if m.access(pair) is False else "likely", words)
    if m.host.virtual:
        words = "the virtual machine hides the PCIe path between these GPUs, so P2P is not offered"
        return Reason(Verdict.WARN, "vm-no-p2p", "likely", words)
    if None not in models and models[0] != models[1]:
        words = "these models differ, and the driver offers no P2P between them"
        return Reason(Verdict.PASS, "p2p-unsupported-pair", "likely", words)
    if status == "TNS" or _only_far_refused(m, pair):
        words = "the path leaves the socket, and the driver offers no P2P across it: copies are staged"
        return Reason(Verdict.PASS, "cross-socket", "likely", words)
    if small_bar(m, pair):
        words = "peers see only a 256 MiB window of the memory (Resizable BAR off), and P2P is not offered"
        return Reason(Verdict.WARN, "rebar-off", "likely", words)
    words = "P2P is not offered, and nothing that was told says why" + (f" (status {status})" if status else "")
    return Reason(Verdict.WARN, None, None, words)


def small_bar(m: Machine, pair: Pair) -> bool:
    """A card of Ampere or later with the 256 MiB window. Turing (T4) and before have no other."""
    sizes = [m.gpu(i).bar1_mib for i in pair]
    small = any(size is not None and size <= 256 for size in sizes) or (m.host.rebar is False and None in sizes)
    generations = [float(model.compute_capability) for i in pair if (model := m.models[i])]
    return small and not any(generation < AMPERE for generation in generations)


def _only_far_refused(m: Machine, pair: Pair) -> bool:
    """Pairs inside a node have P2P, pairs across do not; without classes, islands of equal GPUs on several sockets."""
    granted = [other for other in m.pairs if m.access(other)]
    if not granted:
        return False
    if m.crosses_nodes(pair):
        return not any(m.crosses_nodes(other) and not m.is_nvlink(other) for other in granted)
    if m.crosses_nodes(pair) is False:
        return False
    island = {i: {j for other in granted if i in other for j in other} | {i} for i in range(m.count)}
    whole = all(island[j] == island[i] for i in island for j in island[i])
    return whole and island[pair[0]] != island[pair[1]] and m.host.sockets != 1


def _costs_nothing(case: Case, pairs: list[Pair]) -> bool:
    """Staged pairs are as fast as those with P2P: then the missing P2P is not worth a word."""
    without = [rate.gb_s for pair in pairs if (rate := case.rates.p2p(pair))]
    having = [rate.gb_s for pair, rate in case.rates.all.items() if case.machine.direct[pair]]
    return bool(without and having) and max(without) >= 0.95 * max(having)


def _finding(case: Case, reason: Reason, pairs: list[Pair]) -> Diagnosis:
    m = case.machine
    rates = [rate for pair in pairs if (rate := case.rates.p2p(pair))]
    goals = [rate.goal.gb_s for rate in rates if rate.goal and rate.gb_s < rate.goal.line]
    staged = f"; staged copies reach {span(rate.gb_s for rate in rates)} GB/s one way" if rates else ""
    usual = f", {span(goals)} is usual" if goals else ""
    same = _same_both_ways(case, pairs)
    return Diagnosis(
        finding(
            RULE.name,
            reason.verdict,
            reason.cause,
            reason.confidence,
            subject="host" if len(pairs) == len(m.pairs) else group_label(m, pairs),
            seen=f"no P2P on {len(pairs)} of {len(m.pairs)} pairs",
            wanted=None if reason.verdict is Verdict.PASS else "P2P",
            why=reason.words + staged + usual + same,
            fix="" if reason.verdict is Verdict.PASS else MATRIX,
            evidence=[f"pairs: {listed(pairs)}"]
            + [f"P2P status {word}" for word in sorted({str(m.status(pair)) for pair in pairs} - {"None"})],
        )
    )


def _same_both_ways(case: Case, pairs: list[Pair]) -> str:
    """P2P asked for and switched off give the same number: it was not in use."""
    both = [(one.gb_s, two.gb_s) for p in pairs if (one := case.rates.p2p(p)) and (two := case.rates.staged(p))]
    if not both or not 0.9 < middle(a / b for a, b in both) < 1.1:
        return ""
    return "; with P2P switched off the numbers are the same"


RULE = Rule(
    name="no-p2p",
    order=58,
    title="Pairs without peer-to-peer",
    looks_at="p2p_access, p2p_status, p2p_latency_us (above 9 us is staged), gpus.model, host.virtual, NUMA nodes, "
    "BAR1",
    formula="GeForce of Turing and later, unlike models and pairs across sockets are the product or platform (pass); a "
    "VM, a registry setting and a 256 MiB BAR1 can be changed (warning)",
    sources=("nccl#1127", "nccl#1309", "aikitoria/open-gpu-kernel-modules PR#5", "NVML P2P status codes", "rtx6kpro"),
    cases=("nccl#1127", "RTX 4090 P2P write-up, stock driver", "nccl#257", "POWER8 with four P100"),
    judge=judge,
)
