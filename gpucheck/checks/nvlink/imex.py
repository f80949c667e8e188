"""IMEX: can the GPUs of this compute tray share memory with those of other trays?

Sources: the nvidia-imex unit and package, /etc/nvidia-imex/nodes_config.cfg, and the channels below
/dev/nvidia-caps-imex-channels, which the driver does not make by itself and without which CUDA cannot import memory
of other hosts (NVIDIA IMEX guide). Copies inside the tray need none of them.

Who starts IMEX differs: systemd; a Slurm prolog for each job; on Kubernetes the DRA driver in a pod for each
ComputeDomain, for which NVIDIA has the unit masked. So a unit that is only inactive is a WARN.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import quick_check, with_gpus
from gpucheck.checks.nvlink.fabric import NOT_FOUND, in_cluster, is_tray_gpu, unit_lines
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, NvmlReading
from gpucheck.model.facts import Facts

NAME = "imex"
UNIT = "nvidia-imex"
PACKAGES = (UNIT,)
NODES = "/etc/nvidia-imex/nodes_config.cfg"
CHANNELS = "/dev/nvidia-caps-imex-channels"
# systemctl mask links the unit to /dev/null, so the file is there and empty.
MASKS = (f"/etc/systemd/system/{UNIT}.service", f"/run/systemd/system/{UNIT}.service")


@with_gpus(NAME)
def evaluate(facts: Facts, nvml: NvmlReading) -> Iterator[Finding]:
    """One finding for the service and its configuration, one for the channels; SKIP where no rack is."""
    service = facts.services[UNIT]
    installed = bool(facts.installed(PACKAGES)) or service not in (NOT_FOUND, None)
    if not any(map(is_tray_gpu, nvml.gpus)) and not (installed and any(map(in_cluster, nvml.gpus))):
        yield Subject(check=NAME).skips("nvlink.no-domain")
    elif all(gpu.fabric is not None and not in_cluster(gpu) for gpu in nvml.gpus) and service != "failed":
        yield _host(facts).skips("nvlink.domain-not-shared")
    elif any(facts.texts[path] == "" for path in MASKS):
        yield _host(facts).skips("nvlink.imex-masked")
    elif service is None or (service == NOT_FOUND and facts.system.container):
        yield _host(facts).skips("nvlink.imex-not-queried")
    else:
        yield _service(_host(facts), service, _nodes(facts.texts[NODES]))
        if service == "active" and not _channels(facts):
            yield _host(facts).warns("nvlink.imex-no-channel", f"no IMEX channel in {CHANNELS}", "channel0")


def _nodes(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(filter(None, (line.partition("#")[0].strip() for line in text.splitlines())))


def _channels(facts: Facts) -> tuple[str, ...]:
    return tuple(name for name in facts.folders[CHANNELS] or () if name.startswith("channel"))


def _service(host: Subject, service: str, nodes: tuple[str, ...] | None) -> Finding:
    if service == "active" and nodes == ():
        return host.warns("nvlink.imex-without-nodes", f"no node listed in {NODES}", "all nodes of the domain")
    if service == "active":
        configured = f", {len(nodes)} node{'s' * (len(nodes) != 1)} configured" if nodes else ""
        return host.passes(f"{UNIT} active{configured}")
    if service == "failed":
        return host.fails("nvlink.imex-failed", f"{UNIT} failed", "active")
    if service in ("activating", "reloading"):
        return host.warns("nvlink.imex-starting", f"{UNIT} {service}", "active")
    if service != NOT_FOUND:
        return host.warns("nvlink.imex-stopped", f"{UNIT} {service}", "active")
    return host.warns("nvlink.imex-not-installed", f"{UNIT} not installed", "active")


def _host(facts: Facts) -> Subject:
    nodes = _nodes(facts.texts[NODES])
    channels = "not there" if facts.folders[CHANNELS] is None else ", ".join(_channels(facts)) or "empty"
    lines = (
        *unit_lines(facts, UNIT, PACKAGES),
        f"{NODES}: {'not there' if nodes is None else f'{len(nodes)} nodes'}",
        f"{CHANNELS}: {channels}",
    )
    return Subject(check=NAME, evidence=lines)


NEEDS = (
    *("nvml", "system", f"service:{UNIT}", f"folder:{CHANNELS}"),
    *(f"package:{name}" for name in PACKAGES),
    *(f"text:{path}" for path in (NODES, *MASKS)),
)
CHECK = quick_check(NAME, "software nvlink", evaluate, NEEDS)
