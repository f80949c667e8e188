"""The links while they are used: an idle link lowers itself, so only now its state means something. Pure."""

from collections.abc import Iterator

from gpucheck.measure.facts import Facts
from gpucheck.measure.results import Results
from gpucheck.model import Finding, Gpu, NvmlReading, Verdict

NAME = "links-under-load"
BRAKES = ("hw-slowdown", "hw-thermal", "hw-power-brake")
AGAIN = "gpucheck verify --only measure"


def judge_load(results: Results, facts: Facts) -> Iterator[Finding]:
    """Findings a GPU, or one pass; UNKNOWN where nothing was read while copies ran."""
    used = [device.bus_id for device in results.devices]
    seen = [[gpu for gpu in reading.gpus if gpu.pci_bus_id in used] for reading in facts.during]
    by_gpu: dict[str, list[Gpu]] = {}
    for gpus in seen:
        for gpu in gpus:
            by_gpu.setdefault(gpu.pci_bus_id, []).append(gpu)
    if not by_gpu:
        yield Finding(
            check=NAME,
            verdict=Verdict.UNKNOWN,
            subject="host",
            seen="no NVML reading while copies ran",
            wanted="link rates, throttle reasons and error counters under load",
            why="NVML did not answer in time, or the copies were over too soon",
            fix="gpucheck bandwidth --depth full takes longer and is looked at more often",
        )
        return
    findings = [finding for readings in by_gpu.values() for finding in _gpu(readings, facts.virtual)]
    findings += _rising(used, facts.before, facts.after)
    yield from findings
    if not findings:
        readings = max(len(seen) for seen in by_gpu.values())
        many = "1 GPU" if len(by_gpu) == 1 else f"{len(by_gpu)} GPUs"
        yield Finding(
            check=NAME,
            verdict=Verdict.PASS,
            subject="host",
            seen=f"{many} at full link rate, no brake, no rising error counter",
            wanted="the same",
            evidence=(f"{readings} NVML readings while copies ran",),
        )


def _gpu(readings: list[Gpu], virtual: str | None) -> Iterator[Finding]:
    """The best generation seen counts: between two steps a link may already rest."""
    last, subject = readings[-1], f"gpu:{readings[-1].pci_bus_id}"
    best = max((gpu.pcie.generation or 0 for gpu in readings), default=0)
    if best and last.pcie.max_generation and best < last.pcie.max_generation:
        yield Finding(
            check=NAME,
            verdict=Verdict.FAIL,
            subject=subject,
            seen=f"PCIe Gen{best} while copying",
            wanted=f"Gen{last.pcie.max_generation}",
            cause="pcie-link-downgraded",
            confidence="certain",
            why="the link stays below what card and slot can do together, with copies running over it",
            fix=f"reseat the card, try another slot or riser, set the slot to Auto in the BIOS; then: {AGAIN}",
            evidence=(f"nvmlDeviceGetCurrPcieLinkGeneration: {best} at best in {len(readings)} readings",),
        )
    lanes = max((gpu.pcie.width or 0 for gpu in readings), default=0)
    if lanes and last.pcie.max_width and lanes < last.pcie.max_width and virtual is None:
        yield Finding(
            check=NAME,
            verdict=Verdict.FAIL,
            subject=subject,
            seen=f"{lanes} lanes while copying",
            wanted=f"{last.pcie.max_width} lanes",
            cause="pcie-width-reduced",
            confidence="certain",
            why="the link has lost lanes that card and slot both have, with copies running over it",
            fix=f"reseat the card, check riser and slot bifurcation; then: {AGAIN}",
            evidence=(f"nvmlDeviceGetCurrPcieLinkWidth: {lanes} at best in {len(readings)} readings",),
        )
    brakes = sorted({r for gpu in readings for r in gpu.health.clocks_event_reasons or () if r in BRAKES})
    if brakes:
        yield Finding(
            check=NAME,
            verdict=Verdict.WARN,
            subject=subject,
            seen=", ".join(brakes),
            wanted="no hardware brake while copying",
            cause="throttled",
            confidence="certain",
            why="heat, power or an external signal slows the GPU down, so its numbers are lower than its links",
            fix=f"check airflow, fans, power supplies and cabling; then: {AGAIN}",
            evidence=(f"nvmlDeviceGetCurrentClocksEventReasons: {', '.join(brakes)}",),
        )


def risen(before: NvmlReading | None, after: NvmlReading | None) -> dict[str, dict[str, int]]:
    """By bus id, the error counters that rose between two readings, and by how much."""
    if before is None or after is None:
        return {}
    start = {gpu.pci_bus_id: counters(gpu) for gpu in before.gpus}
    found = {}
    for gpu in after.gpus:
        old, now = start.get(gpu.pci_bus_id, {}), counters(gpu)
        found[gpu.pci_bus_id] = {name: now[name] - old[name] for name in now if now[name] > old.get(name, now[name])}
    return {bus_id: names for bus_id, names in found.items() if names}


def _rising(used: list[str | None], before: NvmlReading | None, after: NvmlReading | None) -> Iterator[Finding]:
    for bus_id, names in risen(before, after).items():
        if bus_id in used:
            yield Finding(
                check=NAME,
                verdict=Verdict.WARN,
                subject=f"gpu:{bus_id}",
                seen=", ".join(f"{name} +{count}" for name, count in names.items()),
                wanted="no new errors while copying",
                cause="pcie-errors" if any(name.startswith("PCIe") for name in names) else "nvlink-errors",
                confidence="likely",
                why="the link repeats transfers: it works, and is about to get slower or fail",
                fix="reseat or clean card, bridge and cables, replace them if the counters go on rising",
                evidence=tuple(f"{name}: +{count} during the copies" for name, count in names.items()),
            )


def counters(gpu: Gpu) -> dict[str, int]:
    """Cumulative error counters that NVML told."""
    errors = gpu.health.pcie_errors
    counts = {
        "PCIe replays": errors.replays,
        "PCIe correctable errors": errors.correctable,
        "PCIe non-fatal errors": errors.non_fatal,
        "PCIe fatal errors": errors.fatal,
    }
    for link in gpu.nvlinks:
        counts[f"NVLink {link.link} replays"] = link.replay_errors
        counts[f"NVLink {link.link} recoveries"] = link.recovery_errors
        counts[f"NVLink {link.link} CRC errors"] = link.crc_errors
    return {name: count for name, count in counts.items() if count is not None}
