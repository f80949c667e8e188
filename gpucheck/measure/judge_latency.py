"""How long a small copy takes: is peer access really used, and is a pair unlike the others? Pure.

A copy engine's small copy takes 1.8 to 4 microseconds over NVLink or one PCIe tree; 11 to 20 through host memory
(cuda-samples#230 and published p2pBandwidthLatencyTest results).
"""

from collections.abc import Iterator
from statistics import median

from gpucheck.measure.plan import Machine
from gpucheck.measure.results import Pair, Results
from gpucheck.measure.subjects import count_text, pair_subject, pairs_text, span_text
from gpucheck.model import Finding, Verdict

NAME = "p2p-latency"
DIRECT_US = 9.0  # above it a copy has most likely been staged
ODD = 2.0  # times the median of the pairs of its class


def judge_latency(results: Results, machine: Machine) -> Iterator[Finding]:
    """One finding for the pairs that are slow in the same way, or one pass."""
    direct = {
        (flow.src, flow.dst): timing.median_s * 1e6
        for flow, timing in results.latency.items()
        if flow.method != "staged" and flow.src != flow.dst and _expects(machine, (flow.src, flow.dst))
    }
    if not direct:
        return
    staged = sorted(pair for pair, us in direct.items() if us > DIRECT_US)
    usual: dict[str | None, list[float]] = {}
    for pair, us in direct.items():
        usual.setdefault(machine.between[pair].cls, []).append(us)
    odd = sorted(
        pair
        for pair, us in direct.items()
        if pair not in staged and us > ODD * median(usual[machine.between[pair].cls])
    )
    if staged:
        yield _slow(
            results,
            staged,
            max(direct[pair] for pair in staged),
            DIRECT_US,
            "a small copy takes as long as through host memory, although the driver grants peer access",
        )
    if odd:
        limit = ODD * max(median(usual[machine.between[pair].cls]) for pair in odd)
        yield _slow(
            results, odd, max(direct[pair] for pair in odd), limit, "slower than the other pairs of the same class"
        )
    if not staged and not odd:
        values = tuple(direct.values())
        yield Finding(
            check=NAME,
            verdict=Verdict.PASS,
            subject="host",
            seen=f"{span_text(values, 'us')}, {count_text(len(values), 'GPU pair')}",
            evidence=("16-byte copies in a row, each waiting for the one before: mostly the copy engine's own setup",),
        )


def _expects(machine: Machine, pair: Pair) -> bool:
    return pair in machine.between and machine.between[pair].expected is not None


def _slow(results: Results, pairs: list[Pair], worst: float, limit: float, why: str) -> Finding:
    return Finding(
        check=NAME,
        verdict=Verdict.WARN,
        subject=pair_subject(results, pairs),
        seen=round(worst, 1),
        wanted=round(limit, 1),
        unit="us",
        why=f"{pairs_text(results, pairs)}: {why}",
        fix="nvidia-smi topo -p2p r; compare with gpucheck topo; check power saving of CPU and PCIe in the BIOS",
    )
