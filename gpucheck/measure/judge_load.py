"""The links while they are used: an idle link lowers itself, so only now its state means something. Pure."""

from collections.abc import Iterator

from gpucheck.measure.facts import Facts
from gpucheck.measure.results import Results
from gpucheck.model import Finding, Gpu, NvmlReading
from gpucheck.model.about import About

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
        yield About(check=NAME).unknown(
            "NVML did not answer in time, or the copies were over too soon",
            "gpucheck bandwidth --depth full takes longer and is looked at more often",
            "no NVML reading while copies ran",
            wanted="link rates, throttle reasons and error counters under load",
        )
        return
    findings = [finding for readings in by_gpu.values() for finding in _gpu(readings, facts.virtual)]
    findings += _rising(used, facts.before, facts.after)
    yield from findings
    if not findings:
        readings = max(len(seen) for seen in by_gpu.values())
        many = "1 GPU" if len(by_gpu) == 1 else f"{len(by_gpu)} GPUs"
        about = About(check=NAME, evidence=(f"{readings} NVML readings while copies ran",))
        yield about.passes(f"{many} at full link rate, no brake, no rising error counter", "the same")


def _gpu(readings: list[Gpu], virtual: str | None) -> Iterator[Finding]:
    """The best generation seen counts: between two steps a link may already rest."""
    last, subject = readings[-1], f"gpu:{readings[-1].pci_bus_id}"
    best = max((gpu.pcie.generation or 0 for gpu in readings), default=0)
    if best and last.pcie.max_generation and best < last.pcie.max_generation:
        read = f"nvmlDeviceGetCurrPcieLinkGeneration: {best} at best in {len(readings)} readings"
        yield About(check=NAME, subject=subject, evidence=(read,)).fails(
            f"PCIe Gen{best} while copying",
            f"Gen{last.pcie.max_generation}",
            "the link stays below what card and slot can do together, with copies running over it",
            f"reseat the card, try another slot or riser, set the slot to Auto in the BIOS; then: {AGAIN}",
            "pcie-link-downgraded",
        )
    lanes = max((gpu.pcie.width or 0 for gpu in readings), default=0)
    if lanes and last.pcie.max_width and lanes < last.pcie.max_width and virtual is None:
        read = f"nvmlDeviceGetCurrPcieLinkWidth: {lanes} at best in {len(readings)} readings"
        yield About(check=NAME, subject=subject, evidence=(read,)).fails(
            f"{lanes} lanes while copying",
            f"{last.pcie.max_width} lanes",
            "the link has lost lanes that card and slot both have, with copies running over it",
            f"reseat the card, check riser and slot bifurcation; then: {AGAIN}",
            "pcie-width-reduced",
        )
    brakes = sorted({r for gpu in readings for r in gpu.health.clocks_event_reasons or () if r in BRAKES})
    if brakes:
        read = f"nvmlDeviceGetCurrentClocksEventReasons: {', '.join(brakes)}"
        yield About(check=NAME, subject=subject, evidence=(read,)).warns(
            ", ".join(brakes),
            "no hardware brake while copying",
            "heat, power or an external signal slows the GPU down, so its numbers are lower than its links",
            f"check airflow, fans, power supplies and cabling; then: {AGAIN}",
            "throttled",
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
            read = tuple(f"{name}: +{count} during the copies" for name, count in names.items())
            yield About(check=NAME, subject=f"gpu:{bus_id}", evidence=read).warns(
                ", ".join(f"{name} +{count}" for name, count in names.items()),
                "no new errors while copying",
                "the link repeats transfers: it works, and is about to get slower or fail",
                "reseat or clean card, bridge and cables, replace them if the counters go on rising",
                "pcie-errors" if any(name.startswith("PCIe") for name in names) else "nvlink-errors",
                "likely",
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
