"""Resizable BAR off: peers see 256 MiB of a card that has many GiB."""

from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Diagnosis, Rule, finding, group_label, span
from gpucheck.diagnose.rules.no_p2p import small_bar
from gpucheck.model.verdict import Verdict


def judge(case: Case) -> Iterator[Diagnosis]:
    """Pairs that use the window and are slow, or were not measured. Fast ones prove that it does no harm."""
    m = case.machine
    pairs = [p for p in case.open(m.pairs) if m.access(p) and not m.is_nvlink(p) and small_bar(m, p)]
    slow = [p for p in pairs if (rate := case.rates.p2p(p)) and rate.level in ("low", "bad")]
    unmeasured = [p for p in pairs if case.rates.p2p(p) is None]
    if not slow and (not pairs or len(unmeasured) < len(pairs)):
        return
    named = slow or unmeasured
    rates = [rate.gb_s for pair in slow if (rate := case.rates.p2p(pair))]
    sizes = [gpu.bar1_mib for gpu in m.seen.gpus if gpu.bar1_mib is not None]
    yield Diagnosis(
        finding(
            RULE.name,
            Verdict.WARN,
            "rebar-off",
            "likely" if slow else "possible",
            subject="host" if len(named) == len(m.pairs) else group_label(m, named),
            seen=f"BAR1 {min(sizes):g} MiB" if sizes else "Resizable BAR off",
            wanted="a window as large as the memory",
            why=f"peers reach this memory through a window far smaller than it; {len(named)} pairs use it"
            + (f" and reach {span(rates)} GB/s" if rates else ""),
            fix="nvidia-smi -q -d MEMORY | grep -A 3 BAR1",
        ),
        frozenset(slow),
    )


RULE = Rule(
    name="rebar",
    order=36,
    title="Resizable BAR",
    looks_at="gpus.bar1_mib, host.rebar, gpus.model, p2p_access, measured pairs",
    formula="BAR1 of 256 MiB on Ampere or later, where P2P is granted and slow or not measured",
    sources=("rtx6kpro", "RTX 4090 P2P notes", "NVML BAR1 captures"),
    judge=judge,
)
