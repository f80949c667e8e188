"""Peer-to-peer slower than the detour through host memory: something sends it the long way, or translates it."""

from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Diagnosis, Rule, finding, group_label, listed, middle, span
from gpucheck.diagnose.machine import NEAR, Machine, Pair
from gpucheck.diagnose.rules._suspects import Suspect, on_path
from gpucheck.model.finding import Finding
from gpucheck.model.verdict import Verdict

# A direct copy passes each link once, a staged one passes memory as well: it cannot be faster. Below the first the
# difference is no noise, below the second P2P costs more than it gives.
SLOWER, MUCH_SLOWER = 0.85, 0.70
LINK_IS_FINE = 0.60


def judge(case: Case) -> Iterator[Diagnosis]:
    """Pairs slow for a reason that lies on the way and not at its ends."""
    pairs = sorted({*_slower_than_staged(case), *_near_slower_than_far(case), *_slow_with_good_links(case)})
    if not pairs:
        return
    m = case.machine
    suspects = on_path(m, pairs)
    fine = [rate for pair, rate in case.rates.all.items() if pair not in pairs and m.classes[pair] in NEAR]
    if all(m.classes[pair] == "SYS" for pair in pairs) and fine and not m.translating:
        words = "P2P below the switches is fine: this CPU is poor at peer traffic between sockets"
        suspects = [Suspect("cross-socket", "likely", words, "keep P2P off for this class: NCCL_P2P_LEVEL=PXB")]
    elif not suspects and all(m.classes[pair] == "SYS" for pair in pairs):
        words = "ACS and IOMMU are out of the way: this CPU is poor at peer traffic between sockets"
        suspects = [Suspect("cross-socket", "likely", words, "keep P2P off for this class: NCCL_P2P_LEVEL=PXB")]
    elif not suspects:
        words = "ACS and IOMMU are out of the way: this root complex is poor at peer traffic"
        suspects = [
            Suspect("expected-limit", "possible", words, "keep P2P off beyond the switches: NCCL_P2P_LEVEL=PXB")
        ]
    for suspect in suspects:
        yield Diagnosis(_finding(case, pairs, suspect), frozenset(pairs))


def _candidates(case: Case) -> list[Pair]:
    m = case.machine
    return [pair for pair in case.open(case.rates.all) if m.direct[pair] is not False and not m.is_nvlink(pair)]


def _slower_than_staged(case: Case) -> Iterator[Pair]:
    for pair in _candidates(case):
        rate, staged = case.rates.p2p(pair), case.rates.staged(pair)
        if rate and staged and rate.way == staged.way and rate.gb_s < SLOWER * staged.gb_s:
            yield pair


def _near_slower_than_far(case: Case) -> list[Pair]:
    """With P2P in use a near copy stays below its switch; slower than a far one means that it goes up and back."""
    m, pairs = case.machine, [pair for pair in _candidates(case) if case.machine.direct[pair]]
    near = [pair for pair in pairs if m.classes[pair] in NEAR]
    far = [pair for pair in pairs if m.classes[pair] in ("PHB", "NODE", "SYS")]
    if not near or not far:
        return []
    usual = middle(case.rates.all[pair].gb_s for pair in far)
    slow = [pair for pair in near if case.rates.all[pair].gb_s < SLOWER * usual]
    return slow if len(slow) * 2 > len(near) else []


def _slow_with_good_links(case: Case) -> Iterator[Pair]:
    """Slow pairs whose links carried far more to the host, or whose host is known to redirect or translate."""
    m = case.machine
    for pair in _candidates(case):
        if case.rates.all[pair].level not in ("low", "bad") or m.classes[pair] is None:
            continue
        reached = case.rates.all[pair].gb_s
        # A copy that stays below a switch meets an IOMMU only where ACS sends it up.
        known = m.acs or (m.translating and not (m.acs is False and m.classes[pair] in NEAR))
        ends = [(m.raw(i), case.rates.proven(i)) for i in pair]
        fine = all(raw and proven >= LINK_IS_FINE * raw and proven * SLOWER > reached for raw, proven in ends)
        if known or (fine and m.classes[pair] in NEAR and _all_near_slow(case)):
            yield pair


def _all_near_slow(case: Case) -> bool:
    """Redirection is a property of the bridges, so every near pair is slow, not one."""
    m = case.machine
    alike = [rate.level for other, rate in case.rates.all.items() if m.classes[other] in NEAR]
    return all(level in ("low", "bad") for level in alike)


def _finding(case: Case, pairs: list[Pair], suspect: Suspect) -> Finding:
    m: Machine = case.machine
    rates = [case.rates.all[pair] for pair in pairs]
    staged = [rate.gb_s for pair in pairs if (rate := case.rates.staged(pair))]
    goals = [rate.goal.gb_s for rate in rates if rate.goal]
    ratio = (
        middle(r.gb_s / s.gb_s for p, r in zip(pairs, rates, strict=True) if (s := case.rates.staged(p)))
        if staged
        else None
    )
    bad = ratio < MUCH_SLOWER if ratio is not None else any(rate.level == "bad" for rate in rates)
    poor = suspect.cause in ("cross-socket", "expected-limit")
    return finding(
        RULE.name,
        Verdict.FAIL if bad and not poor else Verdict.WARN,
        suspect.cause,
        suspect.confidence,
        subject="host" if len(pairs) == len(m.pairs) else group_label(m, pairs),
        seen=f"P2P {span(rate.gb_s for rate in rates)} GB/s",
        wanted=f"staged {span(staged)} GB/s or more"
        if staged
        else f"{span(goals)} GB/s"
        if goals
        else "more than far pairs",
        why=(f"P2P reaches {ratio:.2f} of the detour through host memory. " if ratio is not None else "")
        + suspect.words,
        fix=suspect.fix,
        evidence=[f"{len(pairs)} of {len(m.pairs)} pairs: {listed(pairs)}"],
    )


RULE = Rule(
    name="redirected",
    order=40,
    title="P2P slower than through host memory",
    looks_at="p2p and staged bandwidth of the same pair, near against far pairs, host_device, host.iommu, host.acs",
    formula="P2P < 0.85 x staged; or with P2P in use near < 0.85 x far; or slow while both links carried >= 0.60 x "
    "raw to "
    "the host; redirect bits are 0x04, 0x08, 0x20 of the ACS control; both suspects are named where the host is not "
    "known",
    sources=("nccl#814", "nccl-tests#74", "nccl#199", "Linux drivers/pci/p2pdma.c", "NCCL user guide"),
    cases=("nccl#257", "nccl#667"),
    judge=judge,
)
