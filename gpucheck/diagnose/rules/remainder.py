"""What is left: pairs slow without a known reason, pairs that are as they should be, and what cannot be told."""

from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Diagnosis, Rule, finding, group_label, listed, span
from gpucheck.diagnose.machine import Machine, Pair
from gpucheck.diagnose.rates import Goal, Rate
from gpucheck.diagnose.rules.nvlink_links import all_up
from gpucheck.model.finding import Finding
from gpucheck.model.verdict import Verdict

MEASURE = "gpucheck bandwidth on the host, or add gpus.model, gpus.pcie and matrix to the observations"


def judge(case: Case) -> Iterator[Diagnosis]:
    """One finding for each group of pairs that reads alike."""
    m = case.machine
    left = {pair: case.rates.all[pair] for pair in case.open(case.rates.all)}
    yield from _slow(case, [rate for rate in left.values() if rate.level in ("low", "bad")])
    yield from _good(m, [rate for rate in left.values() if rate.level == "good"])
    unknown = [rate for rate in left.values() if rate.level == "unknown"]
    yield from _classes(case)
    told = any(found.verdict in (Verdict.FAIL, Verdict.WARN) for found in case.earlier)
    if unknown and not told:
        yield _unknown(m, unknown)
    elif (not case.rates.all and not case.rates.class_only() and not case.earlier) or (
        not case.rates.all and not case.rates.class_only() and not _judged(case)
    ):
        yield _nothing(m)


def _judged(case: Case) -> bool:
    """Something was measured or wrong, so that the earlier findings are an answer."""
    return any(found.verdict is not Verdict.PASS for found in case.earlier) or any(
        found.check in ("collectives", "no-p2p") for found in case.earlier
    )


def _slow(case: Case, rates: list[Rate]) -> Iterator[Diagnosis]:
    m = case.machine
    groups: dict[tuple[str | None, str], list[Rate]] = {}
    for rate in rates:
        groups.setdefault((m.classes[rate.pair], rate.level), []).append(rate)
    for (cls, level), group in groups.items():
        pairs = [rate.pair for rate in group]
        goals = [rate.goal for rate in group if rate.goal]
        joined = m.is_nvlink(pairs[0]) and m.direct[pairs[0]] is not False
        up = joined and all(all_up(m, i) for pair in pairs for i in pair)
        note = "; fewer links than the matrix says would do that" if joined else ""
        if up:
            note = "; all NVLinks are up, so they repeat packets, the GPUs brake, or others use them"
        yield Diagnosis(
            finding(
                RULE.name,
                Verdict.FAIL if level == "bad" else Verdict.WARN,
                "nvlink-down" if joined and not up else None,
                "possible" if joined and not up else None,
                subject="host" if len(pairs) == len(m.pairs) > 1 else group_label(m, pairs),
                seen=f"{span(rate.gb_s for rate in group)} GB/s",
                wanted=f"{span(goal.gb_s for goal in goals)} GB/s",
                why=f"{len(pairs)} {cls or 'measured'} pairs are below what they should reach ({goals[0].basis}), "
                f"and nothing "
                "that was told says why" + note,
                fix="nvidia-smi nvlink -s and -e, nvidia-smi -q -d PERFORMANCE, while copying"
                if joined
                else "read every hop under load: gpucheck verify; dmesg | grep AER",
                evidence=[f"pairs: {listed(pairs)}"],
            ),
            frozenset(pairs),
        )


def _good(m: Machine, rates: list[Rate]) -> Iterator[Diagnosis]:
    groups: dict[tuple[str | None, bool | None], list[Rate]] = {}
    for rate in rates:
        groups.setdefault((m.classes[rate.pair], m.direct[rate.pair]), []).append(rate)
    for (cls, direct), group in groups.items():
        goals = [rate.goal for rate in group if rate.goal]
        way = "staged " if direct is False else ""
        values = [rate.gb_s for rate in group]
        both = "" if group[0].way != "bidir" else ", half of both ways together"
        yield Diagnosis(_pass(f"{way}{cls or 'all'} pairs", values, goals, both, [r.pair for r in group]))


def _classes(case: Case) -> Iterator[Diagnosis]:
    """Ranges of classes that no matrix places."""
    for cls, rate in case.rates.class_only().items():
        if rate.level == "good" and rate.goal:
            values = list(case.machine.measured.by_class[cls])
            yield Diagnosis(_pass(f"{cls} pairs", values, [rate.goal], "", []))
        elif rate.level == "unknown":
            yield _unknown(case.machine, [rate])
        elif not any(found.check == "slow-uplink" for found in case.earlier):
            yield Diagnosis(
                finding(
                    RULE.name,
                    Verdict.FAIL if rate.level == "bad" else Verdict.WARN,
                    None,
                    None,
                    subject="host",
                    seen=rate.gb_s,
                    wanted=rate.goal.gb_s if rate.goal else None,
                    why=f"{cls} pairs are below what they should reach, and nothing that was told says why",
                    fix="add matrix and measured pairs to the observations",
                )
            )


def _pass(what: str, values: list[float], goals: list[Goal], both: str, pairs: list[Pair]) -> Finding:
    lines = f"{span(goal.line for goal in goals)} GB/s raw per direction{both}"
    # Kernels reach less than copy engines: in range, and often taken for lost links.
    limit = "the engine is not known" in goals[0].basis and not both and max(values) < 0.93 * goals[0].gb_s
    if min(values) > max(goal.line for goal in goals):
        faster = "more than their PCIe links carry: host copies have a faster way"
        why = f"healthy: {what} reach {span(values)} GB/s, {faster}"
    else:
        why = f"healthy: {what} reach {span(values)} of {lines} ({goals[0].basis})"
    return finding(
        RULE.name,
        Verdict.PASS,
        "expected-limit" if limit else None,
        "possible" if limit else None,
        subject="host",
        seen=f"{span(values)} GB/s",
        wanted=f"{span(goal.gb_s for goal in goals)} GB/s",
        why=why + ("; that is what kernels reach, copy engines reach more: no link is missing" if limit else ""),
        evidence=[f"pairs: {listed(pairs)}"] if pairs else [],
    )


def _unknown(m: Machine, rates: list[Rate]) -> Diagnosis:
    lacks = "the GPU model" if any(gpu.model is None for gpu in m.seen.gpus) else "a link rate of these GPUs"
    return Diagnosis(
        finding(
            RULE.name,
            Verdict.UNKNOWN,
            None,
            None,
            subject="host",
            seen=f"{span(rate.gb_s for rate in rates)} GB/s on {len(rates)} pairs",
            why=f"nothing to compare with: {lacks} is not known",
            fix=MEASURE,
        )
    )


def _nothing(m: Machine) -> Diagnosis:
    return Diagnosis(
        finding(
            RULE.name,
            Verdict.UNKNOWN,
            None,
            None,
            subject="host",
            seen=f"{m.count} GPUs, no bandwidth",
            wanted="measured pairs",
            why="nothing was measured, so nothing can be said about speed",
            fix=MEASURE,
        )
    )


RULE = Rule(
    name="bandwidth",
    order=90,
    title="What is left",
    looks_at="every measured pair that no rule explained, against its expectation",
    formula="PCIe: slowest hop x factor of its class (0.86 switch, 0.80 host bridge, 0.68 Intel, 0.78 sockets), "
    "warn below "
    "0.85, fail below 0.70; NVLink: links x payload x engine factor; staged: 0.62 x raw, half behind one uplink",
    sources=("gpucheck/knowledge/links.yml",),
    cases=(
        "nccl#1264",
        "DistServe#3",
        "cuda-samples#392",
        "rtx6kpro wrx90 and Turin machines",
        "POWER8 with four P100",
    ),
    judge=judge,
)
