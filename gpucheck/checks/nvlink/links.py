"""NVLink: is every link up that this GPU model has?

Sources: nvmlDeviceGetNvLinkState for every port, against the links of the model in the GPU table (12 of 18 ports is
normal on H100 NVL and PCIe); NvLinkDisable in /proc/driver/nvidia/params. A missing link of 18 costs 5.6 % bandwidth,
which a measurement does not distinguish from noise, so the count is evaluated by itself.

Providers switch NVLink off for guests with one GPU, and NVML then reports no link as if the GPU had none. So links that
are all missing are a fault only where the host has a peer to reach and no hypervisor.
"""

import re
from collections.abc import Iterator

from gpucheck.checks._nvml import about, evidence, gaps_of, not_reported, with_gpus
from gpucheck.knowledge.codes import Subject
from gpucheck.model import DEPRECATED, NOT_IN_LIBRARY, Check, Finding, NvmlReading
from gpucheck.model.facts import Facts
from gpucheck.topology.nvlink.ports import CHECK as NAME
from gpucheck.topology.nvlink.ports import (
    PAST,
    STATE_CALL,
    Ports,
    inactive_finding,
    none_active_finding,
    one_per_link,
    ports_of,
)

PARAMS = "/proc/driver/nvidia/params"
SWITCHED_OFF = "NvLinkDisable: 1"


@with_gpus(NAME)
def evaluate(facts: Facts, nvml: NvmlReading) -> Iterator[Finding]:
    """One finding a GPU with NVLink, one for both ends of inactive links; one SKIP for a host without."""
    options = dict(re.findall(r"^(\w+): *(\d+)$", facts.texts[PARAMS] or "", re.MULTILINE))
    limit = int(options.get("RmNvlinkBandwidthLinkCount", 0)) or None  # links that the driver may use, None for all
    every = [ports_of(gpu, limit) for gpu in nvml.gpus]
    linked = [ports for ports in every if ports.up or ports.wanted or (ports.wanted is None and ports.gpu.nvlinks)]
    if not linked:
        yield Subject(check=NAME).skips("nvlink.no-nvlink")
    elif options.get("NvLinkDisable", "0") != "0" and not any(ports.up for ports in linked):
        yield Subject(check=NAME, evidence=(f"{PARAMS}: {SWITCHED_OFF}",)).skips("nvlink.switched-off")
    else:
        yield from one_per_link([(ports, _evaluate(ports, facts.system.virtual, nvml, linked)) for ports in linked])


def _evaluate(ports: Ports, virtual: str | None, nvml: NvmlReading, linked: list[Ports]) -> Finding:
    refused = _refused(ports, nvml)
    if refused is not None:
        return refused
    if ports.wanted is None:
        return _unknown_model(ports)
    if ports.up >= ports.wanted:
        return _mode(ports) or ports.subject.passes(ports.up)
    if ports.up == 0 and ports.bridged:
        return ports.subject.skips("nvlink.no-bridge", 0, ports.wanted)
    if ports.up == 0:
        return _none_up(ports, virtual, nvml, linked)
    if ports.asleep and ports.up + len(ports.asleep) >= ports.wanted:
        return ports.subject.warns("nvlink.links-asleep", ports.up, ports.wanted, asleep=ports.asleep)
    others = any(other.up >= (other.wanted or 0) > 0 for other in linked if other is not ports)
    return inactive_finding(ports, certain=virtual is None or others)


def _refused(ports: Ports, nvml: NvmlReading) -> Finding | None:
    """Return UNKNOWN if NVML did not return the state of links that this GPU may have."""
    gaps = [gap for gap in gaps_of(nvml, ports.gpu, STATE_CALL) if gap.code not in PAST]
    if not gaps or ports.up >= (ports.wanted or ports.up + 1):
        return None
    gap = gaps[0]
    if gap.code in (NOT_IN_LIBRARY, DEPRECATED):  # the model has NVLink, so a missing call does not justify a SKIP
        subject = about(NAME, ports.gpu, evidence(gap))
        return subject.unknown("nvlink.state-not-offered", call=gap.call, nvml_code=gap.code)
    return not_reported(NAME, nvml, ports.gpu, STATE_CALL, what="NVLink state")


def _none_up(ports: Ports, virtual: str | None, nvml: NvmlReading, linked: list[Ports]) -> Finding:
    """No link at all: switched off on purpose, or broken, by what else there is."""
    subject, listed = ports.subject, len(ports.gpu.nvlinks)
    if len(nvml.gpus) == 1:
        return subject.skips("nvlink.one-gpu", 0, ports=listed)
    if virtual and not any(other.up for other in linked):
        if listed:  # seen on a guest that was to have them, and had them after a reboot (azhpc-images#443)
            return subject.skips("nvlink.guest-without-active", 0, ports=listed, virtual=virtual)
        return subject.skips("nvlink.guest-without-nvlink", 0, virtual=virtual)
    return none_active_finding(ports)


def _mode(ports: Ports) -> Finding | None:
    """Return WARN where every link is up and the driver was set to use less of their bandwidth."""
    mode = ports.gpu.health.nvlink_bandwidth
    if mode in (None, "full"):
        return None
    return ports.subject.warns("nvlink.bandwidth-limited", f"NVLink bandwidth mode {mode}", "full")


def _unknown_model(ports: Ports) -> Finding:
    if ports.up == len(ports.gpu.nvlinks):
        return ports.subject.passes(ports.up)
    return ports.subject.unknown("nvlink.model-unknown", ports.up, model=ports.gpu.name)


CHECK = Check(
    NAME,
    frozenset({"hardware", "nvlink", "quick"}),
    evaluate=evaluate,
    needs=("nvml", "system", f"text:{PARAMS}"),
)
