"""Did the data arrive? One finding a kind of damage, naming the pairs and the likely cause. Pure."""

from collections.abc import Iterator

from gpucheck.measure.facts import Facts
from gpucheck.measure.plan import Machine
from gpucheck.measure.results import Results
from gpucheck.measure.subjects import bytes_text, count_text, pair_subject, pairs_text
from gpucheck.measure.values import Check, Damage
from gpucheck.model import Finding, Verdict

NAME = "p2p-integrity"
RECEIVED: dict[Damage, str] = {
    "untouched": "nothing received",
    "zeros": "zeros received",
    "stale": "data of an earlier copy received",
    "other-pair": "data of another pair received",
    "shifted": "data received at the wrong offset",
    "bit-flip": "flipped bits received",
    "mixed": "damaged in several ways",
}
MEANING: dict[Damage, str] = {
    "untouched": "the copy reported success and never arrived",
    "zeros": "the copy reported success and zeros arrived",
    "stale": "data of an earlier copy arrived in place of the new",
    "other-pair": "the data of another pair of GPUs arrived: it was sent to the wrong place",
    "shifted": "the data arrived at the wrong place in memory: the mapping is wrong",
    "bit-flip": "single bits changed on the way: a link or a memory is defective",
    "mixed": "the data that arrived is damaged in several ways",
}
CONFIRM = "gpucheck bandwidth --depth full; stop multi-GPU jobs on this host until it passes"
FIX: dict[str, str] = {
    "iommu-translation": "boot with iommu=pt, or switch the IOMMU off on bare metal; then: " + CONFIRM,
    "false-p2p-grant": "update driver and BIOS, remove a patched driver; then: " + CONFIRM,
    "data-corruption": "nvidia-smi nvlink -e and dmesg | grep -e Xid -e AER; reseat or replace the part; " + CONFIRM,
}


def judge_integrity(results: Results, machine: Machine, facts: Facts) -> Iterator[Finding]:
    """One finding for all pairs with the same damage, or a pass that says how much was compared."""
    bad: dict[tuple[Damage, str], list[tuple[bool, Check]]] = {}
    for loaded, check in results.checks:
        if check.bad_rounds and check.damage:
            bad.setdefault((check.damage, _path(check, machine)), []).append((loaded, check))
    for (damage, path), checks in bad.items():
        yield _damaged(damage, path, checks, results, facts)
    disagree = [check for _, check in results.checks if check.disagreements]
    if disagree:
        yield _distrusted(disagree, results)
    done = sum(check.bytes_verified for _, check in results.checks)
    if bad or disagree:
        return
    if not done:
        yield Finding(
            check=NAME,
            verdict=Verdict.UNKNOWN,
            subject="host",
            seen="data integrity unknown: 0 bytes compared",
            why="no copy was checked, so nothing is known about the data that arrives",
            fix="resolve the other findings, which name what prevented the copies, then: gpucheck bandwidth",
        )
        return
    pairs = {(check.flow.src, check.flow.dst) for _, check in results.checks}
    loads = sum(check.bytes_verified for loaded, check in results.checks if loaded)
    host = sum(check.host_bytes_verified for _, check in results.checks)
    yield Finding(
        check=NAME,
        verdict=Verdict.PASS,
        subject="host",
        seen=f"{bytes_text(done)} compared, no wrong word, {count_text(len(pairs), 'GPU pair')}",
        evidence=(
            f"{bytes_text(loads)} of them while other pairs copied",
            f"{bytes_text(host)} of them compared by the host as well",
        ),
    )


def _path(check: Check, machine: Machine) -> str:
    path = machine.between.get((check.flow.src, check.flow.dst))
    return "nvlink" if path and (path.cls or "").startswith("NV") else "pcie"


def _damaged(damage: Damage, path: str, checks: list[tuple[bool, Check]], results: Results, facts: Facts) -> Finding:
    cause, confidence = _cause(damage, path, facts)
    pairs = sorted({(check.flow.src, check.flow.dst) for _, check in checks})
    wrong, words = sum(c.mismatches for _, c in checks), sum(c.bytes_verified for _, c in checks) // 8
    rounds = f"{sum(c.bad_rounds for _, c in checks)} of {sum(c.rounds for _, c in checks)} rounds damaged ({damage})"
    methods = sorted({check.flow.method for _, check in checks})
    only_loaded = all(loaded for loaded, _ in checks)
    return Finding(
        check=NAME,
        verdict=Verdict.FAIL,
        subject=pair_subject(results, pairs),
        seen=f"{pairs_text(results, pairs)}: data corrupted, {RECEIVED[damage]} "
        f"({wrong:,} of {count_text(words, '8-byte word')})",
        cause=cause,
        confidence=confidence,  # type: ignore[arg-type]  # one of the three words
        why=MEANING[damage] + (", only while other pairs were copying" if only_loaded else ""),
        fix=FIX[cause],
        evidence=(
            *checks[0][1].evidence,
            f"copied by {', '.join(methods)}; first wrong byte {checks[0][1].first}; {rounds}",
        ),
    )


def _cause(damage: Damage, path: str, facts: Facts) -> tuple[str, str]:
    """Zeros and missing writes on PCIe are what an IOMMU without a mapping leaves; the rest is broken by itself."""
    if path == "pcie" and damage in ("zeros", "untouched", "stale"):
        if facts.iommu_translates:
            return "iommu-translation", "certain" if damage == "zeros" else "likely"
        if facts.iommu_translates is None and damage == "zeros":
            return "iommu-translation", "possible"
        return "false-p2p-grant", "likely"
    return "data-corruption", "certain"


def _distrusted(checks: list[Check], results: Results) -> Finding:
    pairs = sorted({(check.flow.src, check.flow.dst) for check in checks})
    words = sum(check.disagreements for check in checks)
    return Finding(
        check=NAME,
        verdict=Verdict.FAIL,
        subject=pair_subject(results, pairs),
        seen=f"{pairs_text(results, pairs)}: {count_text(words, '8-byte word')} wrong on the host, right on the GPU",
        cause="data-corruption",
        confidence="likely",
        why="the GPU that compared, or its way to the host, changes data: its own word cannot be trusted",
        fix="dmesg | grep -e Xid -e AER; reset the GPU; if it returns, replace the card",
        evidence=checks[0].evidence,
    )
