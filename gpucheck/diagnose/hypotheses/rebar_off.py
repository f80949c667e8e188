"""Resizable BAR off: peers see 256 MiB of a card that has many GiB."""

from collections.abc import Iterator

from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.diagnose.hypotheses._links import other_way, over_pcie
from gpucheck.diagnose.instance import Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.paths import Pair
from gpucheck.model.finding.verdict import Verdict

READ, AMPERE = 0.5, 8.0


def instances(m: Machine) -> Iterator[Instance]:
    """Pairs with access granted whose memory is behind the small window."""
    pairs = tuple(pair for pair in over_pcie(m) if m.access[pair] and small_bar(m, pair))
    if not pairs:
        return
    sizes = [gpu.bar1_mib for gpu in m.seen.gpus if gpu.bar1_mib is not None]
    yield other_way(
        "rebar-off",
        pairs,
        "redirected",
        symptoms={"wrong data": 0.3, "hang": 0.2, "damage zeros": 0.3},
        prior=READ,
        verdict=Verdict.WARN,
        seen=f"BAR1 {min(sizes):g} MiB" if sizes else "Resizable BAR off",
        wanted="a window as large as the memory",
        why=f"peers reach this memory through a window far smaller than it; {len(pairs)} pairs use it",
        decide="nvidia-smi -q -d MEMORY | grep -A 3 BAR1",
    )


def small_bar(m: Machine, pair: Pair) -> bool:
    """A card of Ampere or later with the 256 MiB window. Turing (T4) and before have no other."""
    sizes = [m.gpu(i).bar1_mib for i in pair]
    small = any(size is not None and size <= 256 for size in sizes) or (m.host.rebar is False and None in sizes)
    generations = [float(model.compute_capability) for i in pair if (model := m.models[i])]
    return small and not any(generation < AMPERE for generation in generations)


HYPOTHESIS = Hypothesis(
    name="rebar-off",
    causes=("rebar-off",),
    title="Resizable BAR off",
    possible_when="a BAR1 of 256 MiB on Ampere or later, and peer access granted",
    predicts="peer copies at a third to two thirds of the raw rate; staged and host copies as usual",
    prior="0.5 to 1 where the small window was read",
    never_explains="denied access between GeForce cards, fast copies",
    sources=("rtx6kpro", "RTX 4090 P2P notes", "NVML BAR1 captures"),
    instances=instances,
)
