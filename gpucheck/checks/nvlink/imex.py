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
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding, Host, NvmlFailure, NvmlReading, PackageVersion

NAME = "imex"
UNIT = "nvidia-imex"
PACKAGES = (UNIT,)
NODES = "/etc/nvidia-imex/nodes_config.cfg"
CHANNELS = "/dev/nvidia-caps-imex-channels"
# systemctl mask links the unit to /dev/null, so the file is there and empty.
MASKS = (f"/etc/systemd/system/{UNIT}.service", f"/run/systemd/system/{UNIT}.service")


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
        yield Subject(check=NAME).skips("nvlink.no-domain")
    elif all(gpu.fabric is not None and not in_cluster(gpu) for gpu in nvml.gpus) and values.service != "failed":
        yield _host(values).skips("nvlink.domain-not-shared")
    elif values.masked:
        yield _host(values).skips("nvlink.imex-masked")
    elif values.service is None and (values.container or not values.queried):
        yield _host(values).skips("nvlink.imex-not-queried")
    else:
        yield _service(values)
        if values.service == "active" and not values.channels:
            yield _host(values).warns("nvlink.imex-no-channel", f"no IMEX channel in {CHANNELS}", "channel0")


def _service(values: Values) -> Finding:
    host, service = _host(values), values.service
    if service == "active" and values.nodes == ():
        return host.warns("nvlink.imex-without-nodes", f"no node listed in {NODES}", "all nodes of the domain")
    if service == "active":
        nodes = f", {len(values.nodes)} node{'s' * (len(values.nodes) != 1)} configured" if values.nodes else ""
        return host.passes(f"{UNIT} active{nodes}")
    if service == "failed":
        return host.fails("nvlink.imex-failed", f"{UNIT} failed", "active")
    if service in ("activating", "reloading"):
        return host.warns("nvlink.imex-starting", f"{UNIT} {service}", "active")
    if service:
        return host.warns("nvlink.imex-stopped", f"{UNIT} {service}", "active")
    return host.warns("nvlink.imex-not-installed", f"{UNIT} not installed", "active")


def _host(values: Values) -> Subject:
    service = values.service or ("no such unit" if values.queried else NOT_QUERIED)
    nodes = "not there" if values.nodes is None else f"{len(values.nodes)} nodes"
    channels = "not there" if values.channels is None else ", ".join(values.channels) or "empty"
    packages = tuple(f"package {package.name} {package.version}" for package in values.packages)
    lines = (f"{UNIT}.service: {service}", *packages, f"{NODES}: {nodes}", f"{CHANNELS}: {channels}")
    return Subject(check=NAME, evidence=lines)


CHECK = Check(NAME, frozenset({"software", "nvlink", "quick"}), probe, evaluate)
