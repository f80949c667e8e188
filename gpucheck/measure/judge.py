"""From what was measured to findings: one a cause, not one a pair. Pure."""

from collections.abc import Iterator, Sequence

from gpucheck.measure.facts import Facts
from gpucheck.measure.judge_bandwidth import Group, groups, harmed, low_pairs, too_fast
from gpucheck.measure.judge_failures import judge_failures
from gpucheck.measure.judge_integrity import judge_integrity
from gpucheck.measure.judge_latency import judge_latency
from gpucheck.measure.judge_load import judge_load
from gpucheck.measure.plan import Machine
from gpucheck.measure.results import Pair, Results
from gpucheck.measure.subjects import pair_subject, pairs_in_words
from gpucheck.measure.values import Flow, Timing
from gpucheck.model import Finding, Verdict

NAME = "p2p-bandwidth"
AGAIN = "gpucheck bandwidth --depth full"
FIX = {
    "acs-redirect": "switch ACS off in the BIOS or boot with pci=disable_acs_redir=<bridges> (bare metal only); until "
    "then keep NCCL on NCCL_P2P_LEVEL=PIX or below; measure again: " + AGAIN,
    "iommu-translation": "boot with iommu=pt, or switch the IOMMU off on bare metal; measure again: " + AGAIN,
    "pcie-link-downgraded": "nvidia-smi -q -d PCIE and lspci -vv while copying; reseat the card, try another slot or "
    "riser, set the slot to Auto in the BIOS; measure again: " + AGAIN,
    "uplink-downgraded": "lspci -vv on that bridge while copying (LnkSta against LnkCap); reseat the switch card or "
    "its cable, set the slot to Auto in the BIOS; measure again: " + AGAIN,
    "nvlink-down": "nvidia-smi nvlink -s and -e; reset the GPUs, reseat the bridge or board; measure again: " + AGAIN,
    "cross-socket": "pin the run to the GPUs' NUMA node, check the socket link's speed in the BIOS; measure again: "
    + AGAIN,
}


def judge(results: Results, machine: Machine, facts: Facts) -> tuple[Finding, ...]:
    """Every finding of a run, data before speed."""
    findings = [*judge_failures(results, facts)]
    if results.opened is None:
        return tuple(findings)
    findings += judge_integrity(results, machine, facts)
    if facts.kind == "gpu":
        findings += _bandwidth(results, machine, facts)
        findings += judge_latency(results, machine)
        findings += judge_load(results, facts)
    else:
        findings.append(_not_gpus(results))
    if facts.kind == "gpu" and len(results.devices) == 1:
        findings.append(_one_gpu())
    return tuple(findings)


def _not_gpus(results: Results) -> Finding:
    pairs = sum(1 for _ in results.measured())
    return Finding(
        check=NAME,
        verdict=Verdict.SKIP,
        subject="host",
        seen=f"{pairs} ordered pairs of CPU processes",
        why="copies between CPU processes through shared memory: they prove the method, and say nothing about GPUs",
    )


def _one_gpu() -> Finding:
    return Finding(
        check=NAME,
        verdict=Verdict.SKIP,
        subject="host",
        seen="1 GPU",
        why="a single GPU has no pair: copies inside it and to the host were measured, and have no expectation",
    )


def _bandwidth(results: Results, machine: Machine, facts: Facts) -> Iterator[Finding]:
    lows = low_pairs(results, machine)
    hurt = tuple(harmed(results, machine))
    if hurt:
        yield _harmed(results, hurt, facts)
    explained = {pair for pair, _, _ in hurt}
    for group in groups([low for low in lows if low.pair not in explained], results, machine):
        yield _low(group, results, machine)
    for pair, timing, expected in too_fast(results, machine):
        yield Finding(
            check=NAME,
            verdict=Verdict.WARN,
            subject=pair_subject(results, [pair]),
            seen=round(timing.gb_s, 1),
            wanted=expected.high_gb_s,
            unit="GB/s",
            why=f"{pairs_in_words(results, [pair])}: above the line rate of the path: the number or the path is wrong",
            fix="compare gpucheck topo with nvidia-smi topo -m and nvidia-smi nvlink -s; report it with --format json",
            evidence=(expected.basis,),
        )
    yield from _unjudged(results, machine, facts)
    if not lows and not hurt:
        yield from _fine(results, machine)


def _fine(results: Results, machine: Machine) -> Iterator[Finding]:
    ratios = []
    for pair, timing in results.measured():
        path = machine.between.get(pair)
        if path and path.expected:
            ratios.append((timing.gb_s / path.expected.unidirectional_gb_s, timing.gb_s, path.expected))
    if not ratios:
        return
    least, most = min(ratios, key=lambda r: r[0]), max(ratios, key=lambda r: r[0])
    yield Finding(
        check=NAME,
        verdict=Verdict.PASS,
        subject="host",
        seen=f"{len(ratios)} ordered pairs, {least[0]:.0%} to {most[0]:.0%} of what was expected",
        wanted="no pair below the low end of its range",
        evidence=(f"slowest {least[1]:.1f} GB/s of {least[2].unidirectional_gb_s:g}: {least[2].basis}",),
    )


def _unjudged(results: Results, machine: Machine, facts: Facts) -> Iterator[Finding]:
    """Pairs without an expectation: refused ones are as they should be, others are not known."""
    without = [p for p, _ in results.measured() if p not in machine.between or machine.between[p].expected is None]
    staged = [pair for pair in without if (min(pair), max(pair)) in facts.refused]
    unknown = [pair for pair in without if pair not in staged]
    if staged:
        words = sorted({facts.refused[min(p), max(p)] for p in staged})
        yield Finding(
            check=NAME,
            verdict=Verdict.SKIP,
            subject=pair_subject(results, staged),
            seen=f"P2P status {', '.join(words)}: {_range(results, staged)} on {pairs_in_words(results, staged)}",
            cause="vm-no-p2p" if facts.virtual else "geforce-p2p-disabled" if words == ["GNS"] else None,
            confidence="likely" if facts.virtual or words == ["GNS"] else None,
            why="the driver grants no peer access here, so these copies go through host memory: that is the number",
        )
    if unknown:
        yield Finding(
            check=NAME,
            verdict=Verdict.UNKNOWN,
            subject=pair_subject(results, unknown),
            seen=f"{_range(results, unknown)} on {pairs_in_words(results, unknown)}",
            wanted="an expected bandwidth",
            why="neither the path nor its links are known, so there is nothing to judge the number by",
            fix="gpucheck topo says what is not known about the path",
        )


def _range(results: Results, pairs: list[tuple[int, int]]) -> str:
    rates = [timing.gb_s for pair in pairs if (timing := results.one_way(*pair))]
    return f"{min(rates):.1f} GB/s" if len(rates) == 1 else f"{min(rates):.1f} to {max(rates):.1f} GB/s"


def _harmed(results: Results, hurt: Sequence[tuple[Pair, Timing, Timing]], facts: Facts) -> Finding:
    pairs = [pair for pair, _, _ in hurt]
    worst = min(hurt, key=lambda item: item[1].gb_s / item[2].gb_s)
    cause, confidence = "acs-redirect", "possible"
    if facts.iommu_translates:
        cause, confidence = "iommu-translation", "likely"
    if facts.redirecting:
        cause, confidence = "acs-redirect", "certain"
    return Finding(
        check="p2p-against-staged",
        verdict=Verdict.FAIL,
        subject=pair_subject(results, pairs),
        seen=round(worst[1].gb_s, 1),
        wanted=round(worst[2].gb_s, 1),
        unit="GB/s",
        cause=cause,
        confidence=confidence,  # type: ignore[arg-type]  # one of the three words
        why=f"with peer access {pairs_in_words(results, pairs)} is slower than through host memory: something on the "
        "way sends the traffic up to the root complex",
        fix=FIX[cause],
        evidence=tuple(f"ACS redirects at {port}" for port in facts.redirecting or ()),
    )


def _low(group: Group, results: Results, machine: Machine) -> Finding:
    pairs = [low.pair for low in group.lows]
    worst = min(group.lows, key=lambda low: low.gb_s / low.limit_gb_s)
    path = machine.between.get(worst.pair)
    cls = (path.cls if path else None) or ""
    cause, confidence = _cause(group, cls)
    subject = {"gpu": f"gpu:{group.at}", "link": f"link:{group.at}"}.get(group.what) or pair_subject(results, pairs)
    verdict = Verdict.FAIL if any(low.verdict is Verdict.FAIL for low in group.lows) else Verdict.WARN
    alone = [pair for pair in pairs if Flow(src=pair[0], dst=pair[1]) in results.alone]
    return Finding(
        check=NAME,
        verdict=verdict,
        subject=subject,
        seen=round(worst.gb_s, 1),
        wanted=round(worst.limit_gb_s, 1),
        unit="GB/s",
        cause=cause,
        confidence=confidence,  # type: ignore[arg-type]  # one of the three words
        why=_why(group, worst.reason, pairs_in_words(results, pairs)),
        fix=FIX[cause],
        evidence=(
            *((path.expected.basis,) if path and path.expected else ()),
            *(_spread(results, pair) for pair in pairs[:4]),
            f"{len(alone)} of {len(pairs)} ordered pairs measured again alone",
        ),
    )


def _spread(results: Results, pair: tuple[int, int]) -> str:
    timing = results.one_way(*pair)
    if timing is None:
        return ""
    percent = 100 * timing.mad_s / timing.median_s
    return f"{pairs_in_words(results, [pair])}: {timing.gb_s:.1f} GB/s, MAD {percent:.1f} % of {timing.samples} samples"


def _cause(group: Group, cls: str) -> tuple[str, str]:
    if cls.startswith("NV"):
        return "nvlink-down", "possible"
    if group.what == "link":
        return "uplink-downgraded", "likely"
    if group.what in ("pair", "class") and cls == "SYS":
        return "cross-socket", "possible"
    return "pcie-link-downgraded", "likely" if group.what == "gpu" else "possible"


def _why(group: Group, reason: str, pairs: str) -> str:
    wanted = "less than the path should give" if reason == "expected" else f"not {reason}"
    if group.what == "gpu":
        return f"every copy to and from this GPU is slow ({wanted}), the others are not: its own link or slot"
    if group.what == "link":
        return f"the pairs that cross this bridge are slow ({wanted}) and the others are not: {pairs}"
    if group.what == "all":
        return (
            f"every pair of the host is slow ({wanted}): a setting of the whole host, or every link at the wrong rate"
        )
    if group.what == "class":
        return f"every {group.at} pair is slow ({wanted}), the other paths are not"
    return f"{pairs}: {wanted}"
