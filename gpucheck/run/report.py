"""The report around the findings: properties of the host. Every read has a deadline; a missing value is a finding."""

import platform
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from gpucheck import __version__
from gpucheck.checks._session import judged, partial
from gpucheck.host.recording import ReplayHost
from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.packages import packages
from gpucheck.model import Finding, Host, NotRecorded, NvmlReading, PciDevice, Report, System, Verdict
from gpucheck.processes.deadline import StuckError, in_time
from gpucheck.run.conclusion import conclude
from gpucheck.run.guard import AFTER_STUCK_S, broken, stuck
from gpucheck.topology import of

DMI = "/sys/class/dmi/id/"


def attributes(host: Host) -> dict[str, tuple[str, ...]]:
    """By name, sorted and without repeats; what the host does not report is omitted. Empty for an older recording.

    ``bios``, ``board``, ``module`` (kernel module flavour), ``vbios``, ``hold`` (held driver packages) and ``uplink``:
    every port above a GPU with its link, ``0000:20:01.1 gen 5 x16``.
    """
    try:
        return _attributes(host)
    except NotRecorded:
        return {}


def _attributes(host: Host) -> dict[str, tuple[str, ...]]:
    nvml = host.nvml()
    reading = nvml if isinstance(nvml, NvmlReading) else None
    found: dict[str, Iterable[str | None]] = {
        "bios": [host.read_text(DMI + "bios_version")],
        "board": [host.read_text(DMI + "product_name")],
        "module": [host.driver().loaded_flavour],
        "vbios": [gpu.health.vbios for gpu in reading.gpus] if reading else [],
        "hold": [f"{p.name} {p.version}" for p in host.packages(_names(reading)) or () if p.held],
        "uplink": _uplinks(host.pci()),
    }
    clean = {name: sorted({value.strip() for value in values if value}) for name, values in found.items()}
    return {name: tuple(values) for name, values in clean.items() if values}


def _names(reading: NvmlReading | None) -> set[str]:
    """Names that a driver package may have, for the driver that is loaded."""
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
READ_S = 20.0
# Of a run that a signal ended: the report must be out within a second.
INTERRUPTED_S, AFTER_ANOTHER_S = 0.2, 0.05
Answer = TypeVar("Answer")


class _Reader:
    """Reads the host, one value after the other; a value that is late is omitted and reported."""

    def __init__(self, host: Host, patience_s: float, after_stuck_s: float) -> None:
        self.host = host
        self.patience_s = patience_s
        self.after_stuck_s = after_stuck_s
        self.problems: list[Finding] = []

    def read(self, call: Callable[[], Answer], otherwise: Answer) -> Answer:
        try:
            return in_time(NAME, call, self.patience_s)
        except StuckError as error:
            self.patience_s = self.after_stuck_s
            self.problems.append(stuck(NAME, error))
        except NotRecorded:
            pass  # an older recording lacks it, and no verdict depends on it
        except Exception as error:  # the properties of the host must not cost its findings
            self.problems.append(broken(NAME, error))
        return otherwise


def report(
    host: Host,
    findings: list[Finding],
    measurements: dict[str, dict[str, Any]],
    started: datetime,
    seconds: float,
    *,
    strict: bool,
    hurry: bool,
    interrupted: Finding | None = None,
) -> Report:
    """Return the report, with a finding for what could not be read. hurry: a step hangs, so deadlines are short.

    interrupted: the finding that a signal ended the run; it replaces those findings, and NVML is not queried.
    """
    patience_s = float(getattr(host, "patience_s", 0.0))
    reader = _Reader(host, AFTER_STUCK_S if hurry else READ_S + patience_s, AFTER_STUCK_S)
    answered = True
    if interrupted is not None:
        reader = _Reader(host, INTERRUPTED_S, AFTER_ANOTHER_S)
        answered = bool(getattr(host, "nvml_answered", True))
    system = reader.read(host.system, _system())
    # Without a deadline: a simulated host must never be reported as a real one.
    simulation = host.simulation()
    nvml = reader.read(host.nvml, None) if answered else None
    reading = nvml if isinstance(nvml, NvmlReading) else None
    topology = reader.read(lambda: of(host), None) if reading else None
    nothing: dict[str, str | None] = {}
    nothing_common: dict[str, tuple[str, ...]] = {}
    share = reader.read(lambda: partial(host), None) if answered else None
    if share is not None:
        findings = list(judged(findings, share, host.pci()))
    known = {"gpucheck": __version__, **reader.read(lambda: _versions(host, reading), nothing)}
    common = reader.read(lambda: attributes(host), nothing_common) if interrupted is None else nothing_common
    return with_findings(
        Report(
            host=system.hostname,
            simulated=simulation is not None,
            simulation=simulation,
            system=system,
            started=host.recording.recorded if isinstance(host, ReplayHost) else started.isoformat(timespec="seconds"),
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
        strict=strict,
    )


def cut_short(names: Sequence[str], done: int) -> Finding:
    """Return the finding that keeps an interrupted run from passing. names: of all steps, in order."""
    seen, verify = f"interrupted after {done} of {len(names)} steps", Subject(check="verify")
    if done < len(names):
        return verify.unknown("run.steps-interrupted", seen, steps=tuple(names[done:]))
    return verify.unknown("run.run-interrupted", seen)


def with_findings(report: Report, findings: tuple[Finding, ...], *, strict: bool) -> Report:
    """Return the report with these findings, their verdict and counts; the topology's own point to the same root."""
    topology = report.topology
    gpus, wiring = (topology.gpus, topology.wiring) if topology else ((), None)
    found, verdict, counts = conclude(findings, gpus, wiring, strict=strict)
    if topology is not None:
        known = {(one.check, one.subject, one.cause, one.seen): one for one in found}
        own = conclude(topology.findings, gpus, wiring).findings
        own = tuple(known.get((one.check, one.subject, one.cause, one.seen), one) for one in own)
        topology = msgspec.structs.replace(topology, findings=own)
    return msgspec.structs.replace(report, verdict=verdict, findings=found, topology=topology, counts=counts)


def _system() -> System:
    """Return what Python knows, if the host did not respond."""
    unknown = "unknown"
    return System(
        hostname=platform.node() or unknown,
        os_id=unknown,
        os_version=unknown,
        os_name=platform.system(),
        arch=platform.machine(),
        kernel=platform.release(),
    )


def _versions(host: Host, reading: NvmlReading | None) -> dict[str, str | None]:
    return {
        "driver": reading.driver_version if reading else host.driver().loaded_version,
        "cuda": reading.cuda_version if reading else None,
        **host.python_packages(["torch", "tensorflow", "nvidia-ml-py"]),
    }
