"""The links while they are used: an idle link lowers itself, so only now its state means something. Pure."""

from collections.abc import Iterator

from gpucheck.measure.facts import Facts
from gpucheck.measure.results import Results
from gpucheck.measure.subjects import count_text
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
            "link state under load unknown: no NVML reading while copies ran",
        )
        return
    findings = [finding for readings in by_gpu.values() for finding in _gpu(readings, facts.virtual)]
    findings += _rising(used, facts.before, facts.after)
    yield from findings
    if facts.virtual:
        yield About(check=NAME).skips(
            "the guest shows the card's maximum and the host's real link, or what the hypervisor makes up for either",
            f"not applicable: PCIe generation and width in a virtual machine ({facts.virtual})",
        )
    if not findings:
        yield _fine(by_gpu, facts)


def _fine(by_gpu: dict[str, list[Gpu]], facts: Facts) -> Finding:
    """A pass that claims what was read, and no more."""
    readings = [[gpu for gpu in gpus if _full_rate(gpu)] for gpus in by_gpu.values()]
    reasons = [[gpu for gpu in gpus if gpu.health.clocks_event_reasons is not None] for gpus in by_gpu.values()]
    read = {
        "at full PCIe link rate": all(readings) and facts.virtual is None,
        "not throttled": all(reasons),
        "no new link error": facts.before is not None and facts.after is not None,
    }
    about = About(check=NAME, evidence=(count_text(max(map(len, by_gpu.values())), "NVML reading"),))
    fine = [text for text, known in read.items() if known]
    if fine:
        return about.passes(f"{count_text(len(by_gpu), 'GPU')} {', '.join(fine)}")
    return about.unknown(
        "NVML reported neither link rate, throttle reasons nor error counters of these GPUs",
        "nvidia-smi -q -d PCIE,PERFORMANCE shows what the driver reports",
        "link state under load unknown: NVML does not report it",
    )


def _full_rate(gpu: Gpu) -> bool:
    link = gpu.pcie
    return None not in (link.generation, link.max_generation, link.width, link.max_width)


def _gpu(readings: list[Gpu], virtual: str | None) -> Iterator[Finding]:
    """What slows this GPU down or its link."""
    subject = f"gpu:{readings[-1].pci_bus_id}"
    if virtual is None:
        yield from _link(readings, subject)
    brakes = sorted({r for gpu in readings for r in gpu.health.clocks_event_reasons or () if r in BRAKES})
    if brakes:
        read = f"nvmlDeviceGetCurrentClocksEventReasons: {', '.join(brakes)}"
        yield About(check=NAME, subject=subject, evidence=(read,)).warns(
            f"throttled while copying: {', '.join(brakes)}",
            None,
            "heat, power or an external signal slows the GPU down, so its numbers are lower than its links",
            f"check airflow, fans, power supplies and cabling; then: {AGAIN}",
            "throttled",
        )


def _link(readings: list[Gpu], subject: str) -> Iterator[Finding]:
    """Width and generation. The best one seen counts: between two steps a link may already rest."""
    last = readings[-1]
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
    if lanes and last.pcie.max_width and lanes < last.pcie.max_width:
        read = f"nvmlDeviceGetCurrPcieLinkWidth: {lanes} at best in {len(readings)} readings"
        yield About(check=NAME, subject=subject, evidence=(read,)).fails(
            f"{lanes} lanes while copying",
            f"{last.pcie.max_width} lanes",
            "the link has lost lanes that card and slot both have, with copies running over it",
            f"reseat the card, check riser and slot bifurcation; then: {AGAIN}",
            "pcie-width-reduced",
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
                f"new errors while copying: {', '.join(f'{name} +{count}' for name, count in names.items())}",
                None,
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
