"""Why are these pairs slow? From a group of low pairs, or pairs that peer access harms, to cause and remedy. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from gpucheck.knowledge import find_gpu, gpu_by_pci_id
from gpucheck.measure.facts import Facts
from gpucheck.measure.judge_bandwidth import Group
from gpucheck.measure.judge_load import BRAKES, counters, risen
from gpucheck.measure.plan import Machine
from gpucheck.measure.results import Pair, Results
from gpucheck.measure.subjects import pair_subject, pairs_text
from gpucheck.measure.values import Flow, Timing
from gpucheck.model import Finding, Gpu, Verdict

NAME = "p2p-bandwidth"
AGAIN = "gpucheck bandwidth --depth full"
FIX: dict[str | None, str] = {
    None: "nvidia-smi nvlink -s and -e, nvidia-smi -q -d PERFORMANCE,CLOCK, all while copying; reset the GPUs; measure "
    "again: " + AGAIN,
    "acs-redirect": "switch ACS off in the BIOS or boot with pci=disable_acs_redir=<bridges> (bare metal only); until "
    "then keep NCCL on NCCL_P2P_LEVEL=PIX or below; measure again: " + AGAIN,
    "iommu-translation": "boot with iommu=pt, or switch the IOMMU off on bare metal; measure again: " + AGAIN,
    "pcie-link-downgraded": "nvidia-smi -q -d PCIE and lspci -vv while copying; reseat the card, try another slot or "
    "riser, set the slot to Auto in the BIOS; measure again: " + AGAIN,
    "uplink-downgraded": "lspci -vv on that bridge while copying (LnkSta against LnkCap); reseat the switch card or "
    "its cable, set the slot to Auto in the BIOS; measure again: " + AGAIN,
    "nvlink-down": "nvidia-smi nvlink -s; reset the GPUs, reseat the bridge or board; measure again: " + AGAIN,
    "nvlink-errors": "nvidia-smi nvlink -e twice, copying in between; reseat the bridge or board, replace it if the "
    "counters rise; measure again: " + AGAIN,
    "throttled": "check airflow, fans, power supplies and cabling; measure again: " + AGAIN,
    "cross-socket": "pin the run to the GPUs' NUMA node, check the socket link's speed in the BIOS; measure again: "
    + AGAIN,
}
BRIDGES = (
    "lspci -vv on the bridges between them while copying (MaxPayload, error bits); update the BIOS; until then "
    "NCCL_P2P_LEVEL=LOC keeps NCCL on host memory; measure again: " + AGAIN
)


class Blame(NamedTuple):
    """Why a group of pairs is slow. evidence: what NVML said of the links."""

    cause: str | None
    confidence: str | None
    evidence: tuple[str, ...] = ()


def harmed_finding(
    results: Results, machine: Machine, hurt: Sequence[tuple[Pair, Timing, Timing]], facts: Facts
) -> Finding:
    """Pairs that peer access makes slower than host memory would be."""
    pairs = [pair for pair, _, _ in hurt]
    worst = min(hurt, key=lambda item: item[1].gb_s / item[2].gb_s)
    redirecting = [port for port in facts.redirecting or () if any(_crosses(machine, pair, port) for pair in pairs)]
    blame = _detour(facts, redirects=bool(redirecting))
    reason = "something on the way sends the traffic up to the root complex"
    if blame.cause is None:
        reason = "no bridge on the way redirects the traffic (ACS), and no IOMMU is known to translate it"
    return Finding(
        check="p2p-against-staged",
        verdict=Verdict.FAIL,
        subject=pair_subject(results, pairs),
        seen=round(worst[1].gb_s, 1),
        wanted=round(worst[2].gb_s, 1),
        unit="GB/s",
        cause=blame.cause,
        confidence=blame.confidence,  # type: ignore[arg-type]  # one of the three words
        why=f"with peer access {pairs_text(results, pairs)} is slower than through host memory: {reason}",
        fix=FIX[blame.cause] if blame.cause else BRIDGES,
        evidence=tuple(f"ACS redirects at {port}" for port in redirecting),
    )


def _detour(facts: Facts, *, redirects: bool) -> Blame:
    """What sends peer traffic up to the root complex; ACS is a guess only where its registers could not be read."""
    if redirects:
        return Blame("acs-redirect", "certain")
    if facts.iommu_translates:
        return Blame("iommu-translation", "likely")
    return Blame("acs-redirect", "possible") if facts.redirecting is None else Blame(None, None)


def _crosses(machine: Machine, pair: Pair, port: str) -> bool:
    path = machine.between.get(pair)
    return path is not None and any(resource.partition(":")[2] == port for resource in path.resources)


def low_finding(group: Group, results: Results, machine: Machine, facts: Facts) -> Finding:
    """Pairs that are slow for one reason."""
    pairs = [low.pair for low in group.lows]
    worst = min(group.lows, key=lambda low: low.gb_s / low.limit_gb_s)
    path = machine.between.get(worst.pair)
    cls = (path.cls if path else None) or ""
    blame = _nvlink(pairs, results, facts) if cls.startswith("NV") else _pcie(group, cls)
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
        cause=blame.cause,
        confidence=blame.confidence,  # type: ignore[arg-type]  # one of the three words
        why=_why(group, worst.reason, pairs_text(results, pairs))
        + ("" if blame.cause else "; all its NVLinks are up and count no errors"),
        fix=FIX[blame.cause],
        evidence=(
            *((path.expected.basis,) if path and path.expected else ()),
            *(_spread(results, pair) for pair in pairs[:4]),
            f"{len(alone)} of {len(pairs)} ordered pairs measured again alone",
            *blame.evidence,
        ),
    )


def _spread(results: Results, pair: tuple[int, int]) -> str:
    timing = results.one_way(*pair)
    if timing is None:
        return ""
    percent = 100 * timing.mad_s / timing.median_s
    return f"{pairs_text(results, [pair])}: {timing.gb_s:.1f} GB/s, MAD {percent:.1f} % of {timing.samples} samples"


def _pcie(group: Group, cls: str) -> Blame:
    if group.what == "link":
        return Blame("uplink-downgraded", "likely")
    if group.what in ("pair", "class") and cls == "SYS":
        return Blame("cross-socket", "possible")
    return Blame("pcie-link-downgraded", "likely" if group.what == "gpu" else "possible")


def _nvlink(pairs: Sequence[Pair], results: Results, facts: Facts) -> Blame:
    """A link that says it is up is not down: then it repeats packets, or a GPU brakes, or nothing that is told says."""
    ends = {results.devices[place].bus_id for pair in pairs for place in pair}
    seen = [gpu for reading in facts.during for gpu in reading.gpus if gpu.pci_bus_id in ends]
    latest = {gpu.pci_bus_id: gpu for gpu in seen}
    states = tuple(f"{at}: {gpu.active_nvlinks} of {len(gpu.nvlinks)} NVLink ports up" for at, gpu in latest.items())
    if any(_lost_links(gpu) for gpu in latest.values()):
        return Blame("nvlink-down", "likely", states)
    new = [(at, *told) for at, names in risen(facts.before, facts.after).items() for told in names.items()]
    repeated = tuple(f"{at}: {name} +{n}" for at, name, n in new if at in ends and name.startswith("NVLink"))
    if repeated:
        return Blame("nvlink-errors", "likely", (*states, *repeated))
    brakes = sorted({reason for gpu in seen for reason in gpu.health.clocks_event_reasons or () if reason in BRAKES})
    if brakes:
        return Blame("throttled", "likely", (*states, f"while copying: {', '.join(brakes)}"))
    counted = [n for gpu in latest.values() for name, n in counters(gpu).items() if name.startswith("NVLink")]
    if counted and not any(counted):
        return Blame(None, None, (*states, "no NVLink error since the driver was loaded"))
    told = f"{sum(counted)} NVLink errors since the driver was loaded" if counted else "NVLink errors are not told"
    return Blame("nvlink-errors", "possible", (*states, told))


def _lost_links(gpu: Gpu) -> bool:
    """Fewer up than the product uses: its further ports are off by design. None up: switched off, as in guests."""
    model = gpu_by_pci_id(gpu.device_id) or find_gpu(gpu.name)
    return bool(model and model.nvlink and 0 < gpu.active_nvlinks < model.nvlink.links)


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
