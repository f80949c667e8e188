"""The report around the findings: properties of the host. Every read has a deadline; a missing value is a finding."""

import platform
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from gpucheck import __version__
from gpucheck.checks._session import SESSION_NEEDS, judged, session
from gpucheck.host.live import AFTER_STUCK_S
from gpucheck.host.recording import Recording
from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.packages import packages
from gpucheck.model import Finding, NotRecorded, NvmlReading, PciDevice, Report, System, Verdict
from gpucheck.model.facts import Source
from gpucheck.model.finding import identity
from gpucheck.printable import counted
from gpucheck.processes.deadline import StuckError, in_time
from gpucheck.run.conclusion import conclude
from gpucheck.run.step import broken, stuck
from gpucheck.topology import of
from gpucheck.topology.nics import NEEDS, cards_of_gpus

BIOS, BOARD = "/sys/class/dmi/id/bios_version", "/sys/class/dmi/id/product_name"
PYTHON = ("torch", "tensorflow", "nvidia-ml-py")


def attributes(source: Source) -> dict[str, tuple[str, ...]]:
    """By name, sorted and without repeats; what the host does not report is omitted. Empty for an older recording.

    ``bios``, ``board``, ``module`` (kernel module flavour), ``vbios``, ``hold`` (held driver packages) and ``uplink``:
    every port above a GPU with its link, ``0000:20:01.1 gen 5 x16``. Of the network cards of GPUs ``nic-rail`` (their
    places), ``nic-firmware`` (by board), ``nic-rate``, ``nic-mtu`` and ``nic-gid-index`` of active ports.
    """
    try:
        facts = source.read("nvml", "pci", "driver", f"text:{BIOS}", f"text:{BOARD}")
        reading = facts.nvml if isinstance(facts.nvml, NvmlReading) else None
        names = _names(reading)
        drivers = source.read(*(f"package:{name}" for name in names)).installed(names)
    except NotRecorded:
        return {}
    found: dict[str, Iterable[str | None]] = {
        "bios": [facts.texts[BIOS]],
        "board": [facts.texts[BOARD]],
        "module": [facts.driver.loaded_flavour],
        "vbios": [gpu.health.vbios for gpu in reading.gpus] if reading else [],
        "hold": [f"{p.name} {p.version}" for p in drivers if p.held],
        "uplink": _uplinks(facts.pci),
        **_of_cards(source),
    }
    clean = {name: sorted({value.strip() for value in values if value}) for name, values in found.items()}
    return {name: tuple(values) for name, values in clean.items() if values}


def _of_cards(source: Source) -> dict[str, list[str]]:
    try:
        facts = source.read(*NEEDS)
    except NotRecorded:
        return {}
    cards = cards_of_gpus(facts)
    active = [port for card in cards for port in card.device.ports if port.is_active]
    rates = Counter(port.rate_gbit_s for port in active if port.rate_gbit_s)
    return {
        "nic-rail": [card.pci.bus_id for card in cards],
        "nic-firmware": [f"{card.device.board} {card.device.firmware}" for card in cards if card.device.firmware],
        "nic-rate": [f"{counted(count, 'port')} at {rate:g} Gb/s" for rate, count in rates.items()],
        "nic-mtu": [str(port.mtu) for port in active if port.mtu],
        "nic-gid-index": [str(min(port.gids)) for port in active if port.gids],
    }


def _names(reading: NvmlReading | None) -> set[str]:
    version = (reading.driver_version if reading else None) or ""
    branch = version.partition(".")[0]
    templates = {template for row in packages().drivers for template in row.packages}
    words = {template.partition("=")[0].partition(" ")[0] for template in templates}
    return {word.replace("{branch}", branch).replace("{version}", version) for word in words}


def _uplinks(devices: tuple[PciDevice, ...]) -> list[str]:
    """The link of an idle port may have slowed down to save power: only ports above GPUs; width is more reliable."""
    by_id = {device.bus_id: device for device in devices}
    ports = {bus_id for device in devices if device.is_nvidia_gpu for bus_id in device.path}
    links = ((bus_id, by_id[bus_id].link) for bus_id in ports if bus_id in by_id)
    return [f"{b} gen {link.generation} x{link.width}" for b, link in links if link.generation and link.width]


NAME = "report"
# Of a run that a signal ended: the report must be out within a second.
INTERRUPTED_S, AFTER_ANOTHER_S = 0.2, 0.05
Answer = TypeVar("Answer")


class _Reader:
    """Reads the host, one value after the other; a value that is late is omitted and reported.

    patience_s: for each; None is what the source allows by itself. after_stuck_s: for those after one that is late.
    """

    def __init__(self, patience_s: float | None, after_stuck_s: float) -> None:
        self.patience_s = patience_s
        self.after_stuck_s = after_stuck_s
        self.problems: list[Finding] = []

    def read(self, call: Callable[[], Answer], otherwise: Answer) -> Answer:
        try:
            return call() if self.patience_s is None else in_time(NAME, call, self.patience_s)
        except StuckError as error:
            self.patience_s = self.after_stuck_s
            self._add(stuck(NAME, error))
        except NotRecorded:
            pass  # an older recording lacks it, and no verdict depends on it
        except Exception as error:  # the properties of the host must not cost its findings
            self._add(broken(NAME, error))
        return otherwise

    def _add(self, problem: Finding) -> None:
        if problem not in self.problems:  # several values may need the same read
            self.problems.append(problem)


def report(
    source: Source,
    findings: list[Finding],
    measurements: dict[str, dict[str, Any]],
    started: datetime,
    seconds: float,
    *,
    hurry: bool,
    interrupted: Finding | None = None,
) -> Report:
    """Return the report, with a finding for what could not be read. hurry: a step hangs, so deadlines are short.

    interrupted: the finding that a signal ended the run; it replaces those findings, and NVML is not queried.
    """
    reader, answered = _Reader(AFTER_STUCK_S if hurry else None, AFTER_STUCK_S), True
    if interrupted is not None:
        reader, answered = _Reader(INTERRUPTED_S, AFTER_ANOTHER_S), not source.read().missing(["nvml"])
    system = reader.read(lambda: source.read("system").system, _system())
    # No report without it: a simulated host must never be reported as a real one.
    simulation = source.read("simulation").simulation
    nvml = reader.read(lambda: source.read("nvml").nvml, None) if answered else None
    reading = nvml if isinstance(nvml, NvmlReading) else None
    topology = reader.read(lambda: of(source), None) if reading else None
    nothing: dict[str, str | None] = {}
    nothing_common: dict[str, tuple[str, ...]] = {}
    share = reader.read(lambda: session(source.read(*SESSION_NEEDS)), None) if answered else None
    if share is not None:
        findings = list(judged(findings, share, source.read("pci").pci))
    known = {"gpucheck": __version__, **reader.read(lambda: _versions(source, reading), nothing)}
    common = reader.read(lambda: attributes(source), nothing_common) if interrupted is None else nothing_common
    return with_findings(
        Report(
            host=system.hostname,
            simulated=simulation is not None,
            simulation=simulation,
            system=system,
            started=source.recorded if isinstance(source, Recording) else started.isoformat(timespec="seconds"),
            seconds=round(seconds, 3),
            versions=known,
            verdict=Verdict.UNKNOWN,
            findings=(),
            measurements=measurements,
            topology=topology,
            counts={},
            attributes=common,
            interrupted=interrupted is not None,
            partial=share,
        ),
        (*findings, *(reader.problems if interrupted is None else [interrupted])),
    )


def cut_short(left: Sequence[str], total: int) -> Finding:
    """Return the finding that keeps an interrupted run from passing. left: names of the steps that did not run."""
    seen, verify = f"interrupted after {total - len(left)} of {total} steps", Subject(check="verify")
    if left:
        return verify.unknown("run.steps-interrupted", seen, steps=tuple(left))
    return verify.unknown("run.run-interrupted", seen)


def with_findings(report: Report, findings: tuple[Finding, ...]) -> Report:
    """Return the report with these findings, their verdict and counts; the topology's own point to the same root."""
    topology = report.topology
    gpus, wiring = (topology.gpus, topology.wiring) if topology else ((), None)
    found, verdict, counts = conclude(findings, gpus, wiring)
    if topology is not None:
        known: defaultdict[tuple[object, ...], list[Finding]] = defaultdict(list)
        for one in reversed(found):
            known[identity(one)].append(one)
        own = conclude(topology.findings, gpus, wiring).findings
        own = tuple(known[identity(one)].pop() if known[identity(one)] else one for one in own)
        topology = msgspec.structs.replace(topology, findings=own)
    return msgspec.structs.replace(report, verdict=verdict, findings=found, topology=topology, counts=counts)


def _system() -> System:
    unknown = "unknown"
    return System(
        hostname=platform.node() or unknown,
        os_id=unknown,
        os_version=unknown,
        os_name=platform.system(),
        arch=platform.machine(),
        kernel=platform.release(),
    )


def _versions(source: Source, reading: NvmlReading | None) -> dict[str, str | None]:
    python = source.read(*(f"python:{name}" for name in PYTHON)).python_packages
    return {
        "driver": reading.driver_version if reading else source.read("driver").driver.loaded_version,
        "cuda": reading.cuda_version if reading else None,
        **{name: python[name] for name in PYTHON},
    }
