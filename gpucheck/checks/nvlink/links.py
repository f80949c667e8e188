"""NVLink: is every link up that this GPU model has?

Sources: nvmlDeviceGetNvLinkState for every port, against the links of the model in the GPU table (12 of 18 ports is
normal on H100 NVL and PCIe); NvLinkDisable in /proc/driver/nvidia/params. A missing link of 18 costs 5.6 % bandwidth,
which a measurement does not distinguish from noise, so the count is evaluated by itself.

Providers switch NVLink off for guests with one GPU, and NVML then reports no link as if the GPU had none. So links that
are all missing are a fault only where the host has a peer to reach and no hypervisor.
"""

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from gpucheck.checks._nvml import evidence, gaps_of, not_reported, reading_with_gpus, reason
from gpucheck.model import DEPRECATED, NOT_IN_LIBRARY, Check, Finding, Host, NvmlFailure, NvmlReading
from gpucheck.model.finding.about import About
from gpucheck.topology.nvlink.ports import CHECK as NAME
from gpucheck.topology.nvlink.ports import FIX, PAST, STATE_CALL, Ports, inactive_finding, one_per_link, ports_of

PARAMS = "/proc/driver/nvidia/params"
SWITCHED_OFF = "NvLinkDisable: 1"
NO_LINK = "not applicable: no GPU of this host has NVLink"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs, the kind of virtual machine, and what the driver's options set for NVLink.

    disabled: None where the options cannot be read. limit: links that the driver may use, None for all.
    """

    nvml: NvmlReading | NvmlFailure
    virtual: str | None
    disabled: bool | None
    limit: int | None


def probe(host: Host) -> Values:
    text = host.read_text(PARAMS)
    options = dict(re.findall(r"^(\w+): *(\d+)$", text or "", re.MULTILINE))
    return Values(
        nvml=host.nvml(),
        virtual=host.system().virtual,
        disabled=None if text is None else options.get("NvLinkDisable", "0") != "0",
        limit=int(options.get("RmNvlinkBandwidthLinkCount", 0)) or None,
    )


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding a GPU with NVLink, one for both ends of inactive links; one SKIP for a host without."""
    nvml = reading_with_gpus(NAME, values.nvml)
    if isinstance(nvml, Finding):
        yield nvml
        return
    every = [ports_of(gpu, values.limit) for gpu in nvml.gpus]
    linked = [ports for ports in every if ports.up or ports.wanted or (ports.wanted is None and ports.gpu.nvlinks)]
    if not linked:
        yield About(check=NAME).skips(NO_LINK)
    elif values.disabled and not any(ports.up for ports in linked):
        why = "not applicable: the driver option NVreg_NvLinkDisable=1 switches NVLink off"
        yield About(check=NAME, evidence=(f"{PARAMS}: {SWITCHED_OFF}",)).skips(why)
    else:
        yield from one_per_link([(ports, _evaluate(ports, values, nvml, linked)) for ports in linked])


def _evaluate(ports: Ports, values: Values, nvml: NvmlReading, linked: list[Ports]) -> Finding:
    refused = _refused(ports, nvml)
    if refused is not None:
        return refused
    if ports.wanted is None:
        return _unknown_model(ports)
    if ports.up >= ports.wanted:
        return _mode(ports) or ports.about().passes(ports.up)
    if ports.up == 0 and ports.bridged:
        why = "not applicable: this model has NVLink only through a bridge, and none of its links is active"
        return ports.about().skips(why, 0, wanted=ports.wanted)
    if ports.up == 0:
        return _none_up(ports, values, nvml, linked)
    if ports.asleep and ports.up + len(ports.asleep) >= ports.wanted:
        return _asleep(ports)
    others = any(other.up >= (other.wanted or 0) > 0 for other in linked if other is not ports)
    return inactive_finding(ports, certain=values.virtual is None or others)


def _refused(ports: Ports, nvml: NvmlReading) -> Finding | None:
    """Return UNKNOWN if NVML did not return the state of links that this GPU may have."""
    gaps = [gap for gap in gaps_of(nvml, ports.gpu, STATE_CALL) if gap.code not in PAST]
    if not gaps or ports.up >= (ports.wanted or ports.up + 1):
        return None
    if gaps[0].code in (NOT_IN_LIBRARY, DEPRECATED):  # the model has NVLink, so a missing call does not justify a SKIP
        about = About(check=NAME, subject=f"gpu:{ports.gpu.pci_bus_id}", evidence=(evidence(gaps[0]),))
        return about.unknown(f"NVLink state unknown: {reason(gaps[0])}", "nvidia-smi nvlink -s; update the driver")
    return not_reported(NAME, nvml, ports.gpu, STATE_CALL, what="NVLink state")


def _none_up(ports: Ports, values: Values, nvml: NvmlReading, linked: list[Ports]) -> Finding:
    """No link at all: switched off on purpose, or broken, by what else there is."""
    state = f"all {len(ports.gpu.nvlinks)} NVLinks are inactive" if ports.gpu.nvlinks else "NVML reports no NVLink"
    name = ports.model.name if ports.model else ports.gpu.name
    if len(nvml.gpus) == 1:
        off = "NVLink is switched off, as providers do for guests with one GPU, or not connected"
        return ports.about().skips(f"not applicable: one GPU has no peer ({state}: {off})", 0)
    others = any(other.up for other in linked)
    if values.virtual and not others:
        why = f"not applicable: {state} on any GPU of this {values.virtual} guest: its provider switched NVLink off"
        if ports.gpu.nvlinks:  # seen on a guest that was to have them, and had them after a reboot (azhpc-images#443)
            why = f"{why}, or it was not set up when the guest started; then a reboot of the guest restores it"
        return ports.about().skips(why, 0)
    confidence: Literal["certain", "likely"] = "likely"
    if ports.gpu.nvlinks and (values.virtual is None or others):
        confidence = "certain"
    cause = "nvlink-down" if ports.gpu.nvlinks else "nvlink-missing"
    why = f"{state[0].upper()}{state[1:]}, and {name} has {ports.wanted}: GPU to GPU traffic takes PCIe."
    return ports.about().fails(0, ports.wanted, why, FIX, cause, confidence)


def _mode(ports: Ports) -> Finding | None:
    """Return WARN where every link is up and the driver was set to use less of their bandwidth."""
    mode = ports.gpu.health.nvlink_bandwidth
    if mode in (None, "full"):
        return None
    why = "All NVLinks are up, and the driver limits their bandwidth to save power."
    fix = "nvidia-smi nvlink --help shows the options of the bandwidth mode; set it to FULL, if it is not intentional"
    return ports.about().warns(f"NVLink bandwidth mode {mode}", "full", why, fix, "nvlink-bandwidth-mode")


def _asleep(ports: Ports) -> Finding:
    why = "Links in their low-power state are not used by NCCL, which takes links in state active only."
    fix = "nvidia-smi nvlink -s; run a GPU program, then: gpucheck verify --only nvlink"
    return ports.about().warns(ports.up, ports.wanted, f"{why} {len(ports.asleep)} links sleep.", fix, None)


def _unknown_model(ports: Ports) -> Finding:
    if ports.up == len(ports.gpu.nvlinks):
        return ports.about().passes(ports.up)
    why = f"expected number of NVLinks unknown: {ports.gpu.name} is not in the GPU table"
    fix = "compare with the other GPUs of this model and the vendor's data sheet"
    return ports.about().unknown(why, fix, ports.up)


CHECK = Check(NAME, frozenset({"hardware", "nvlink", "quick"}), probe, evaluate)
