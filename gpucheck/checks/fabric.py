"""NVSwitch fabric: has every GPU joined it, and does the fabric manager match the driver?

Sources: nvmlDeviceGetGpuFabricInfo (state 3 = completed; status counts only then, 0 = success); NVSwitch chips by PCI
class; the nvidia-fabricmanager unit and package. Fabric manager refuses to start on any version but the driver's, and
CUDA then answers 802 (system not ready) on a host where nvidia-smi looks fine.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import not_looked
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure, NvmlReading, PackageVersion, Verdict
from gpucheck.model.about import About

NAME = "fabric"
UNIT = "nvidia-fabricmanager"
# The package's name on deb and rpm systems, before and since branch 580; the Ubuntu archive keeps a branch suffix.
PACKAGES = ("nvidia-fabricmanager", "nvidia-fabric-manager", "nvidia-fabricmanager-580")


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs' fabric states, the switches on the bus, and the fabric manager."""

    nvml: NvmlReading | NvmlFailure
    switches: int
    service: str | None
    packages: tuple[PackageVersion, ...]


def probe(host: Host) -> Values:
    """Ask NVML, the PCI bus, systemd and the package database."""
    return Values(
        nvml=host.nvml(),
        switches=sum(device.is_nvswitch for device in host.pci()),
        service=host.services([UNIT])[UNIT],
        packages=host.packages(PACKAGES) or (),
    )


def evaluate(values: Values) -> Iterator[Finding]:
    """SKIP without a fabric; else one finding for the GPUs and one for the manager."""
    if isinstance(values.nvml, NvmlFailure):
        yield not_looked(NAME, values.nvml)
        return
    members = [gpu for gpu in values.nvml.gpus if gpu.fabric is not None and gpu.fabric.state != "not-supported"]
    if not members and not values.switches:
        yield Finding(
            check=NAME,
            verdict=Verdict.SKIP,
            subject="host",
            seen="no NVSwitch",
            why="no GPU reports a fabric and the PCI bus shows no NVSwitch",
            fix="nothing to do; if this machine has NVSwitches: gpucheck verify --only inventory",
        )
        return
    yield from _states(values, members)
    if values.switches:
        yield from _manager(values)


def _states(values: Values, members: list[Gpu]) -> Iterator[Finding]:
    states = [(gpu.pci_bus_id, gpu.fabric) for gpu in members if gpu.fabric is not None]
    evidence = (
        *(f"{bus_id}: state {fabric.state}, status {fabric.status}" for bus_id, fabric in states),
        f"{UNIT}.service: {values.service}",
    )
    if not members:
        yield _service_alone(values)
        return
    ready = [fabric for _, fabric in states if fabric.state == "completed" and fabric.status == 0]
    training = [fabric for _, fabric in states if fabric.state == "in-progress"]
    seen, wanted = f"{len(ready)} of {len(members)} GPUs registered", "all registered with success"
    if len(ready) == len(members):
        yield Finding(check=NAME, verdict=Verdict.PASS, subject="host", seen=seen, wanted=wanted, evidence=evidence)
    elif training and values.service == "active":
        yield Finding(
            check=NAME,
            verdict=Verdict.WARN,
            subject="host",
            seen=f"{seen}, {len(training)} in progress",
            wanted=wanted,
            why="the fabric is still training its links; this takes 30 to 90 s after fabric manager starts",
            fix=f"wait two minutes, then: gpucheck verify --only {NAME}",
            evidence=evidence,
        )
    else:
        yield Finding(
            check=NAME,
            verdict=Verdict.FAIL,
            subject="host",
            seen=seen,
            wanted=wanted,
            cause="fabric-version-mismatch" if _mismatched(values) else "fabric-manager-down",
            confidence="certain" if values.service != "active" else "likely",
            why="GPUs that are not registered in the NVSwitch fabric fail CUDA with error 802 (system not ready)",
            fix=f"systemctl status {UNIT}; journalctl -u {UNIT}; start it at the driver's exact version",
            evidence=evidence,
        )


def _mismatched(values: Values) -> bool:
    """Whether fabric manager is of another version than the driver, on which it does not start."""
    driver = values.nvml.driver_version if isinstance(values.nvml, NvmlReading) else None
    return any(_release(package) != driver for package in values.packages)


def _release(package: PackageVersion) -> str:
    """Without epoch and package revision: ``1:580.178.04-1`` is 580.178.04."""
    return (package.version.partition(":")[2] or package.version).split("-")[0]


def _service_alone(values: Values) -> Finding:
    """GPUs before Hopper do not tell whether they are registered, so fabric manager's word has to do."""
    service = values.service
    about = About(check=NAME, evidence=(f"{UNIT}.service: {service}", "no GPU reports a registration (before Hopper)"))
    if service == "active":
        return about.passes("fabric manager active", "active")
    why = "without fabric manager the NVSwitches carry nothing, and CUDA fails with error 802 (system not ready)"
    fix = f"systemctl status {UNIT}; journalctl -u {UNIT}; start it at the driver's exact version"
    cause = "fabric-version-mismatch" if _mismatched(values) else "fabric-manager-down"
    return about.fails(f"fabric manager {service or 'not installed'}", "active", why, fix, cause)


def _manager(values: Values) -> Iterator[Finding]:
    assert isinstance(values.nvml, NvmlReading)  # noqa: S101 - evaluate() returned on a failure
    driver = values.nvml.driver_version
    if not values.packages:
        yield Finding(
            check=NAME,
            verdict=Verdict.UNKNOWN,
            subject="host",
            seen="no fabric manager package",
            wanted=driver,
            why="NVSwitch chips are present, and no package of fabric manager is known to dpkg or rpm",
            fix="install fabric manager at the driver's exact version, or ignore this on hosts managed by a service VM",
        )
    for package in values.packages:
        same = _release(package) == driver
        yield Finding(
            check=NAME,
            verdict=Verdict.PASS if same else Verdict.FAIL,
            subject="host",
            seen=f"{package.name} {package.version}",
            wanted=driver,
            cause=None if same else "fabric-version-mismatch",
            confidence=None if same else "certain",
            why="" if same else "fabric manager works only at exactly the loaded driver's version",
            fix="" if same else f"install {package.name} {driver}, hold it, and restart {UNIT}",
        )


CHECK = Check(NAME, frozenset({"hardware", "software", "nvlink", "quick"}), probe, evaluate)
