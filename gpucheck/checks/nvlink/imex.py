"""IMEX: can the GPUs of this compute tray share memory with those of other trays?

Sources: the nvidia-imex unit and package, /etc/nvidia-imex/nodes_config.cfg, and the channels below
/dev/nvidia-caps-imex-channels, which the driver does not make by itself and without which CUDA cannot import memory
of other hosts (NVIDIA IMEX guide). Copies inside the tray need none of them.

Who starts IMEX differs: systemd; a Slurm prolog for each job; on Kubernetes the DRA driver in a pod for each
ComputeDomain, for which NVIDIA has the unit masked. So a unit that is only inactive is a WARN.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import reading_with_gpus
from gpucheck.checks._services import NOT_QUERIED, unit_state
from gpucheck.checks.nvlink._fabric_health import in_cluster, is_tray_gpu
from gpucheck.model import Check, Finding, Host, NvmlFailure, NvmlReading, PackageVersion
from gpucheck.model.finding.about import About

NAME = "imex"
CAUSE = "imex-down"
UNIT = "nvidia-imex"
PACKAGES = (UNIT,)
NODES = "/etc/nvidia-imex/nodes_config.cfg"
CHANNELS = "/dev/nvidia-caps-imex-channels"
# systemctl mask links the unit to /dev/null, so the file is there and empty.
MASKS = (f"/etc/systemd/system/{UNIT}.service", f"/run/systemd/system/{UNIT}.service")
START = f"systemctl status {UNIT}; journalctl -u {UNIT}\nsystemctl enable --now {UNIT}\nnvidia-imex-ctl -N"
CHANNEL = (
    "Boot with the driver option NVreg_CreateImexChannel0=1, or create the channel: "
    f"mkdir -p {CHANNELS}; mknod {CHANNELS}/channel0 c $(awk '/imex-channels/ {{print $1}}' /proc/devices) 0"
)
PER_JOB = "Where Slurm or Kubernetes provide it for each job, this is their state between jobs."


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs, the service, its configuration, and the channels.

    service: None where there is no such unit. queried: whether systemd could be queried. nodes: addresses of the
    domain, None where the file is not there. channels: None where their directory is not there.
    """

    nvml: NvmlReading | NvmlFailure
    service: str | None
    queried: bool
    masked: bool
    packages: tuple[PackageVersion, ...]
    nodes: tuple[str, ...] | None
    channels: tuple[str, ...] | None
    container: str | None


def probe(host: Host) -> Values:
    service, queried = unit_state(host, UNIT)
    text, names = host.read_text(NODES), host.list_names(CHANNELS)
    lines = None if text is None else (line.partition("#")[0].strip() for line in text.splitlines())
    return Values(
        nvml=host.nvml(),
        service=service,
        queried=queried,
        masked=any(host.read_text(path) == "" for path in MASKS),
        packages=host.packages(PACKAGES) or (),
        nodes=None if lines is None else tuple(filter(None, lines)),
        channels=None if names is None else tuple(name for name in names if name.startswith("channel")),
        container=host.system().container,
    )


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for the service and its configuration, one for the channels; SKIP where no rack is."""
    nvml = reading_with_gpus(NAME, values.nvml)
    installed = bool(values.packages) or values.service is not None
    if isinstance(nvml, Finding):
        yield nvml
    elif not any(map(is_tray_gpu, nvml.gpus)) and not (installed and any(map(in_cluster, nvml.gpus))):
        yield About(check=NAME).skips("not applicable: no GPU belongs to an NVLink domain of several hosts")
    elif all(gpu.fabric is not None and not in_cluster(gpu) for gpu in nvml.gpus) and values.service != "failed":
        why = "not applicable: the driver reports no NVLink domain that these GPUs share with other hosts"
        yield _about(values).skips(why)
    elif values.masked:
        why = f"not applicable: {UNIT}.service is masked, as where Kubernetes runs IMEX for each ComputeDomain"
        yield _about(values).skips(why)
    elif values.service is None and (values.container or not values.queried):
        yield _about(values).skips(f"not run: {NOT_QUERIED}; IMEX is a service of the host")
    else:
        yield _service(values)
        if values.service == "active" and not values.channels:
            yield _no_channel(values)


def _service(values: Values) -> Finding:
    about, service = _about(values), values.service
    local = "GPUs of this tray reach each other; memory of other trays cannot be imported over NVLink."
    if service == "active" and values.nodes == ():
        seen, fix = f"no node listed in {NODES}", f"list the addresses of all nodes of the domain in {NODES}\n{START}"
        return about.warns(seen, "all nodes of the domain", local, fix, CAUSE, "likely")
    if service == "active":
        nodes = f", {len(values.nodes)} node{'s' * (len(values.nodes) != 1)} configured" if values.nodes else ""
        return about.passes(f"{UNIT} active{nodes}")
    if service == "failed":
        return about.fails(f"{UNIT} failed", "active", local, START, CAUSE)
    if service in ("activating", "reloading"):
        why = f"{local} IMEX waits for the other nodes of its domain while it starts."
        return about.warns(f"{UNIT} {service}", "active", why, START, CAUSE, "likely")
    seen = f"{UNIT} {service}" if service else f"{UNIT} not installed"
    fix = START if service else f"install {UNIT} at exactly the driver's version\n{START}"
    return about.warns(seen, "active", f"{local} {PER_JOB}", fix, CAUSE, "likely")


def _no_channel(values: Values) -> Finding:
    why = f"CUDA cannot import memory of other hosts without an IMEX channel. {PER_JOB}"
    return _about(values).warns(f"no IMEX channel in {CHANNELS}", "channel0", why, CHANNEL, CAUSE, "possible")


def _about(values: Values) -> About:
    service = values.service or ("no such unit" if values.queried else NOT_QUERIED)
    nodes = "not there" if values.nodes is None else f"{len(values.nodes)} nodes"
    channels = "not there" if values.channels is None else ", ".join(values.channels) or "empty"
    packages = tuple(f"package {package.name} {package.version}" for package in values.packages)
    lines = (f"{UNIT}.service: {service}", *packages, f"{NODES}: {nodes}", f"{CHANNELS}: {channels}")
    return About(check=NAME, evidence=lines)


CHECK = Check(NAME, frozenset({"software", "nvlink", "quick"}), probe, evaluate)
