"""What nvidia-smi reports of one GPU, by name, whether it was printed as text, as XML or as CSV."""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from gpucheck.imports._text import linux_bus_id, regex
from gpucheck.knowledge.xid import nvml_errors
from gpucheck.model.diagnosis.observations import NvLinkCount, Observations, ObservedGpu, ObservedHost, Port
from gpucheck.model.facts import Facts
from gpucheck.model.host.hardware import (
    EccCounts,
    Fabric,
    Gpu,
    Health,
    PcieErrors,
    PcieLink,
    RetiredPages,
    RowRemap,
    SpareRows,
)
from gpucheck.model.host.readings import NvmlReading
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

# Values as nvidia-smi prints them. None is "the text does not say": N/A, an error, or nothing at all.
NUMBER = regex(r"\s*(-?\d{1,12}(?:\.\d{1,6})?)\s*(MiB|GiB|KiB|MB|Mb|W|mW|C|%|MHz|x|bank\(s\)|us)?\s*")
MEMORY = {"KiB": 1 << 10, "MiB": 1 << 20, "MB": 1 << 20, "Mb": 1 << 20, "GiB": 1 << 30}
BUS_ID = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
DEVICE_ID = regex(r"(?:0x)?([0-9A-Fa-f]{4})10[Dd][Ee]")
SWITCHES = {
    **dict.fromkeys(("enabled", "yes", "active", "on", "1"), True),
    **dict.fromkeys(("disabled", "no", "not active", "off", "0"), False),
}
MODES = {
    "default": "default",
    "exclusive_thread": "exclusive-thread",
    "e. thread": "exclusive-thread",
    "exclusive_process": "exclusive-process",
    "e. process": "exclusive-process",
    "prohibited": "prohibited",
}


def number(text: str | None) -> float | None:
    match = NUMBER.fullmatch(text) if text else None
    return float(match[1]) if match else None


def whole(text: str | None) -> int | None:
    value = number(text)
    return None if value is None else int(value)


def size(text: str | None) -> int | None:
    """Bytes. A bare number is of MiB, as nvidia-smi prints it with ``nounits``."""
    match = NUMBER.fullmatch(text) if text else None
    return int(float(match[1]) * MEMORY.get(match[2] or "MiB", 1)) if match else None


def switch(text: str | None) -> bool | None:
    """Enabled, Yes, Active, On; Disabled, No, Not Active, Off. A star marks a setting that waits for a reset."""
    return SWITCHES.get(text.strip().rstrip("*").lower()) if text else None


def compute_mode(text: str | None) -> str | None:
    return MODES.get(text.strip().lower()) if text else None


def bus_id(text: str | None) -> str | None:
    """``00000000:3B:00.0`` as ``0000:3b:00.0``; None for all ones, which NVML answers for a device it cannot see."""
    found = linux_bus_id(text or "")
    return None if found is None or found.startswith("ffffffff:") else found


def device_id(text: str | None) -> str | None:
    match = DEVICE_ID.fullmatch(text.strip()) if text else None
    return match[1].lower() if match else None


def version(text: str | None) -> str | None:
    """A version; None for N/A and Not Found. R610 writes a note behind some."""
    match = re.fullmatch(r"(\d{1,5}(?:\.\d{1,5}){1,3})(?:\s{1,4}\[.{0,200})?", text) if text else None
    return match[1] if match else None


Path = tuple[str, ...]
# NVML's order of the bits.
REASONS = {
    "idle": ("idle", "gpu_idle"),
    "app-clocks": ("applications_clocks_setting",),
    "sw-power-cap": ("sw_power_cap",),
    "hw-slowdown": ("hw_slowdown",),
    "sync-boost": ("sync_boost",),
    "sw-thermal": ("sw_thermal_slowdown",),
    "hw-thermal": ("hw_thermal_slowdown",),
    "hw-power-brake": ("hw_power_brake_slowdown",),
    "display-clocks": ("display_clock_setting", "display_clocks_setting"),
}
REASON_SECTIONS = ("clocks_event_reasons", "clocks_throttle_reasons")
# For how long the hardware lowered the clocks since the driver was loaded, R550 and newer: as text, and as XML.
LOWERED = {
    "HW Thermal Slowdown": (
        "clocks_event_reasons_counters/hw_thermal_slowdown",
        "clocks_event_reasons_counters_hw_therm_slowdown",
    ),
    "HW Power Braking": (
        "clocks_event_reasons_counters/hw_power_braking",
        "clocks_event_reasons_counters_hw_power_brake",
    ),
}
REASON_PREFIXES = ("", "clocks_event_reason_", "clocks_throttle_reason_", "clocks_event_reasons_")
BELOW = ("hw_slowdown/",)  # where a page that lost its indentation has them
ACTIONS = ("none", "reset", "reboot", "drain-p2p", "drain-and-reset", "recover-imex", "bus-reset", "system-reboot")
POWER = ("gpu_power_readings", "gpu_ceiling_power_limit", "power_readings")
# What nvidia-smi prints in place of a value that the GPU did not give.
NO_ANSWER = ("GPU is lost", "GPU requires reset", "Unknown Error", "ERR!")
NO_NAMES = ("N/A", *NO_ANSWER)
# Sections, or names without one, whose values are the health of the GPU.
STATE = {"volatile", "aggregate", "remapped_rows", "retired_pages", "gpu_recovery_action"}
BANKS = {"every": "max", "most": "high", "some": "partial", "few": "low", "none": "none"}
# Rows of the section Fabric; of its health the words, and the shifts of NVML_GPU_FABRIC_HEALTH_MASK_*: 0 is not
# reported, 1 true, 2 false.
FABRIC_STATES: dict[str, Literal["not-supported", "not-started", "in-progress", "completed"]] = {
    "Not Supported": "not-supported",
    "Not Started": "not-started",
    "In Progress": "in-progress",
    "Completed": "completed",
}
SUMMARIES: dict[str, Literal["healthy", "unhealthy", "limited-capacity"]] = {
    "Healthy": "healthy",
    "Unhealthy": "unhealthy",
    "Limited Capacity": "limited-capacity",
}
YES_OR_NO = ("remapped_rows/pending", "remapped_rows/remapping_failure_occurred", "sram_threshold_exceeded")
HEALTH = {"bandwidth": 0, "route_recovery_in_progress": 2, "route_unhealthy": 4, "access_timeout_recovery": 6}
FABRIC_WORDS = {
    **dict.fromkeys(("N/A", "Not Supported"), 0),
    **dict.fromkeys(("Degraded", "True", "Yes"), 1),
    **dict.fromkeys(("Full", "False", "No", "None"), 2),
}
# The same for its incorrect configuration: 1 if there is no such thing, 15 for any other word.
CONFIGURED, OTHER_CONFIGURATION = {"N/A": 0, "Not Supported": 0, "None": 1, "False": 1, "No": 1}, 15
UNKNOWN_ERROR = 999
IDLE_STATES = regex(r"P(?:[5-9]|1\d)")


def name_of(text: str) -> str:
    """Return a section or a name as used in a path: ``PCIe Generation`` is ``pcie_generation``."""
    return re.sub(r"[^a-z0-9]{1,20}", "_", text.strip().lower()).strip("_")


class Fields:
    """The fields of one GPU. A path is found by its last parts; the first of several counts."""

    def __init__(self, rows: Iterable[tuple[Path, str]]) -> None:
        self.found: dict[Path, str] = {}
        for path, value in rows:
            for parts in range(1, min(len(path), 4) + 1):
                self.found.setdefault(path[-parts:], value.strip())

    def get(self, *paths: str) -> str | None:
        """The value at the first of these paths (``section/name``) that the text has."""
        return next((self.found[key] for path in paths if (key := tuple(path.split("/"))) in self.found), None)

    def __bool__(self) -> bool:
        return bool(self.found)


def gpu(fields: Fields, index: int, bus_id: str | None) -> Gpu:
    """One GPU. Its PCI bus id is ``GPU0`` if the text does not contain it."""
    name = fields.get("product_name") or ""
    return Gpu(
        index=index,
        name="" if name in NO_NAMES else name,
        uuid=fields.get("gpu_uuid", "uuid") or "",
        pci_bus_id=bus_id or f"GPU{index}",
        device_id=device_id(fields.get("pci/device_id", "pci/pci_device_id")) or "",
        compute_capability=version(fields.get("compute_cap")),
        memory_bytes=size(fields.get("fb_memory_usage/total", "memory_usage/total")),
        bar1_bytes=size(fields.get("bar1_memory_usage/total")),
        pcie=_link(fields),
        fabric=_fabric(fields),
        health=_health(fields),
    )


def named(index: int, name: str, uuid: str = "") -> Gpu:
    return Gpu(index=index, name=name, uuid=uuid, pci_bus_id=f"GPU{index}", device_id="")


def observed(gpu: Gpu, fields: Fields | None = None) -> ObservedGpu:
    """The same for the evaluation of GPU links. A generation below the maximum counts only if the GPU was not idle."""
    link = gpu.pcie
    idle = fields is not None and _is_idle(fields)
    known = idle or (link.generation is not None and link.generation == link.max_generation)
    return ObservedGpu(
        model=gpu.name or None,
        bus_id=None if gpu.pci_bus_id.startswith("GPU") else gpu.pci_bus_id,
        pcie=Port(
            gen=link.generation if known else None,
            width=link.width,
            max_gen=link.max_generation,
            max_width=link.max_width,
            read="idle" if idle and (link.generation or link.width) else None,
        ),
        bar1_mib=None if gpu.bar1_bytes is None else gpu.bar1_bytes / (1 << 20),
        nvlinks=NvLinkCount(active=gpu.active_nvlinks, total=len(gpu.nvlinks)) if gpu.nvlinks else NvLinkCount(),
    )


def _is_idle(fields: Fields) -> bool:
    busy = whole(fields.get("utilization/gpu", "utilization/gpu_util"))
    state = fields.get("performance_state", "pstate") or ""
    return busy == 0 or (busy is None and IDLE_STATES.fullmatch(state) is not None)


def is_virtual(fields: Fields) -> bool:
    return fields.get("virtualization_mode") in ("Pass-Through", "VGPU", "vGPU")


def _link(fields: Fields) -> PcieLink:
    return PcieLink(
        generation=whole(fields.get("pcie_generation/current", "pcie_gen/current_link_gen")),
        width=whole(fields.get("link_width/current", "link_widths/current_link_width")),
        max_generation=whole(fields.get("pcie_generation/max", "pcie_gen/max_link_gen")),
        max_width=whole(fields.get("link_width/max", "link_widths/max_link_width")),
        device_max_generation=whole(fields.get("pcie_generation/device_max", "pcie_gen/max_device_link_gen")),
    )


def _fabric(fields: Fields) -> Fabric | None:
    """The registration as NVML has it, its health as the mask of nvml.h; None where the text reports none."""
    state = FABRIC_STATES.get(fields.get("fabric/state") or "")
    if state is None:
        return None
    mask = sum(FABRIC_WORDS.get(fields.get(f"health/{name}") or "", 0) << shift for name, shift in HEALTH.items())
    mask |= CONFIGURED.get(fields.get("health/incorrect_configuration") or "N/A", OTHER_CONFIGURATION) << 8
    summary = fields.get("health/summary") or ""
    return Fabric(
        state=state,
        status=_status(fields.get("fabric/status")),
        clique_id=whole(fields.get("fabric/cliqueid")),
        cluster_uuid=fields.get("fabric/clusteruuid"),
        health_mask=mask or None,
        health_summary=SUMMARIES.get(summary),
    )


def _status(text: str | None) -> int | None:
    """NVML's return code by its text, UNKNOWN_ERROR for a text that NVML does not have."""
    if text in (None, "N/A"):
        return None
    if text == "Success":
        return 0
    return next((code for code, error in nvml_errors().items() if error.text == text), UNKNOWN_ERROR)


def not_understood(fields: Fields) -> tuple[str, str] | None:
    """Return path and word of a value about health that nvidia-smi is not known to print; None without one."""
    words = {"fabric/state": {*FABRIC_STATES, "N/A"}, "health/summary": {*SUMMARIES, "N/A", "Not Supported"}}
    words |= {f"health/{name}": {*FABRIC_WORDS} for name in HEALTH} | {key: {"Yes", "No", "N/A"} for key in YES_OR_NO}
    found = ((path, fields.get(path)) for path in words)
    return next(((path, word) for path, word in found if word is not None and word not in words[path]), None)


def unread(fields: Fields) -> tuple[str, str] | None:
    """Return path and word of a value about health that the driver could not read; None without one."""
    state = {*STATE, *REASON_SECTIONS}
    found = (("/".join(path), value) for path, value in fields.found.items() if state.intersection(path))
    return next(((path, value) for path, value in found if value in NO_ANSWER), None)


def replays(fields: Fields) -> int | None:
    return whole(fields.get("replays_since_reset", "replay_counter"))


def _health(fields: Fields) -> Health:
    def limit(*names: str) -> float | None:
        """Of the GPU, never of its memory or of the module that it sits on."""
        return number(fields.get(*(f"{section}/{name}" for name in names for section in POWER)))

    return Health(
        vbios=fields.get("vbios_version"),
        persistence=switch(fields.get("persistence_mode")),
        compute_mode=compute_mode(fields.get("compute_mode")),
        mig=switch(fields.get("mig_mode/current", "mig_mode/current_mig")),
        mig_pending=switch(fields.get("mig_mode/pending", "mig_mode/pending_mig")),
        ecc=switch(fields.get("ecc_mode/current", "ecc_mode/current_ecc")),
        ecc_pending=switch(fields.get("ecc_mode/pending", "ecc_mode/pending_ecc")),
        ecc_counts=EccCounts(
            volatile_corrected=_errors(fields, "volatile", "single_bit", "correctable"),
            volatile_uncorrected=_errors(fields, "volatile", "double_bit", "uncorrectable"),
            aggregate_corrected=_errors(fields, "aggregate", "single_bit", "correctable"),
            aggregate_uncorrected=_errors(fields, "aggregate", "double_bit", "uncorrectable"),
        ),
        inforom_valid={"valid": True, "invalid": False}.get(fields.get("inforom_checksum") or ""),
        row_remap=_row_remap(fields),
        spare_rows=_spare_rows(fields),
        retired_pages=_retired_pages(fields),
        pcie_errors=PcieErrors(replays=replays(fields)),
        recovery_action=_action(fields),
        clocks_event_reasons=_reasons(fields),
        temperature_c=whole(
            fields.get("temperature/gpu_current_temp", "temperature/gpu_temp", "temperature/gpu", "gpu_temp")
        ),
        temperature_slowdown_c=whole(fields.get("temperature/gpu_slowdown_temp", "gpu_temp_slow_threshold")),
        temperature_shutdown_c=whole(fields.get("temperature/gpu_shutdown_temp", "gpu_temp_max_threshold")),
        temperature_margin_c=_margin(fields),
        power_w=limit("power_draw", "average_power_draw", "instantaneous_power_draw", "instant_power_draw"),
        power_limit_w=limit("current_power_limit", "power_limit"),
        power_enforced_w=limit("enforced_power_limit"),
        power_default_w=limit("default_power_limit"),
        power_min_w=limit("min_power_limit"),
        power_max_w=limit("max_power_limit"),
        sm_clock_mhz=whole(fields.get("clocks/sm", "clocks/sm_clock")),
        max_sm_clock_mhz=whole(fields.get("max_clocks/sm", "max_clocks/sm_clock")),
        application_clock_mhz=whole(fields.get("applications_clocks/graphics", "applications_clocks/graphics_clock")),
        default_application_clock_mhz=whole(
            fields.get("default_applications_clocks/graphics", "default_applications_clocks/graphics_clock")
        ),
        memory_used_bytes=size(fields.get("fb_memory_usage/used", "memory_usage/used")),
        gpu_utilization_percent=whole(fields.get("utilization/gpu", "utilization/gpu_util")),
    )


def _margin(fields: Fields) -> int | None:
    margin = whole(fields.get("temperature/gpu_t_limit_temp", "gpu_temp_tlimit"))
    slowdown = whole(fields.get("temperature/gpu_slowdown_t_limit_temp", "gpu_temp_slow_tlimit_threshold"))
    limit = whole(fields.get("temperature/gpu_slowdown_temp", "gpu_temp_slow_threshold"))
    celsius = whole(fields.get("temperature/gpu_current_temp", "temperature/gpu_temp", "gpu_temp"))
    if margin is not None:
        return margin - min(0, slowdown or 0)
    return limit - celsius if limit and celsius is not None else None


def _errors(fields: Fields, since: str, bits: str, kind: str) -> int | None:
    """ECC errors: a total before Turing; since then by memory, of Hopper on with two kinds in the SRAM."""
    total = whole(fields.get(f"{since}/{bits}/total"))
    if total is not None:
        return total
    names = [f"{memory}_{kind}{part}" for memory in ("sram", "dram") for part in ("", "_parity", "_sec_ded", "_secded")]
    values = [fields.get(f"{since}/{name}") for name in (*names, f"{bits}/device_memory")]
    known = [count for count in map(whole, values) if count is not None]
    # Of errors that are known in part, none is no answer.
    return (sum(known) or (0 if not {*values} & {*NO_ANSWER} else None)) if known else None


def _row_remap(fields: Fields) -> RowRemap | None:
    """Return None unless the text states both whether remapping failed and is pending, or that one of them is so."""
    failed = switch(fields.get("remapped_rows/remapping_failure_occurred", "remapped_rows/remapped_row_failure"))
    pending = switch(fields.get("remapped_rows/pending", "remapped_rows/remapped_row_pending"))
    corrected = whole(fields.get("remapped_rows/correctable_error", "remapped_rows/remapped_row_corr"))
    uncorrected = whole(fields.get("remapped_rows/uncorrectable_error", "remapped_rows/remapped_row_unc"))
    if not (failed or pending) and (failed is None or pending is None):
        return None
    return RowRemap(corrected=corrected or 0, uncorrected=uncorrected or 0, pending=bool(pending), failed=bool(failed))


def _spare_rows(fields: Fields) -> SpareRows | None:
    names = ("bank_remap_availability_histogram/", "row_remapper_histogram/row_remapper_histogram_")
    counts = {left: whole(fields.get(*(f"{name}{bank}" for name in names))) for left, bank in BANKS.items()}
    known = {left: count for left, count in counts.items() if count is not None}
    return SpareRows(**known) if len(known) == len(BANKS) else None


def _retired_pages(fields: Fields) -> RetiredPages | None:
    # XML has two elements for it, under the former name and the present one.
    names = ("pending_page_blacklist", "pending_blacklist", "pending_retirement", "retired_pages/pending")
    known = [answer for name in names if (answer := switch(fields.get(name))) is not None]
    pending = any(known) if known else None
    single = whole(fields.get("retired_pages/single_bit_ecc", "multiple_single_bit_retirement/retired_count"))
    double = whole(fields.get("retired_pages/double_bit_ecc", "double_bit_retirement/retired_count"))
    if pending is None or (not pending and (single is None or double is None)):
        return None
    return RetiredPages(single_bit=single or 0, double_bit=double or 0, pending=pending)


def _action(fields: Fields) -> str | None:
    reported = fields.get("gpu_recovery_action")
    if reported is not None:
        name = re.sub(r"[ _]", "-", reported.strip().lower())
        silent = name in ("n/a", "not-supported") or reported in NO_ANSWER
        return name if name in ACTIONS else None if silent else f"unknown-{name}"
    if switch(fields.get("gpu_reset_status/drain_and_reset_recommended")):
        return "drain-and-reset"
    needed = switch(fields.get("gpu_reset_status/reset_required"))
    return None if needed is None else "reset" if needed else "none"


def _reasons(fields: Fields) -> tuple[str, ...] | None:
    """Return None if the section is missing or cut before the hardware's reasons and reports none of them."""

    def reported(name: str) -> bool | None:
        sections = [f"{section}/{prefix}" for section in REASON_SECTIONS for prefix in REASON_PREFIXES]
        return switch(fields.get(*(f"{section}{each}" for each in REASONS[name] for section in (*sections, *BELOW))))

    states = {name: reported(name) for name in REASONS}
    active = tuple(name for name, state in states.items() if state)
    if states["hw-slowdown"] is None and not any(name.startswith(("hw-", "sw-thermal")) for name in active):
        return None
    return active


def part(
    gpus: Sequence[Gpu],
    fields: Sequence[Fields] = (),
    *,
    driver: str | None = None,
    cuda: str | None = None,
    messages: Sequence[Message] = (),
    extra: Sequence[str] = (),
    environment: dict[str, str] | None = None,
) -> Part:
    """What was read. fields: of each GPU, where there are any.

    The GPUs may be some of the machine's only: run/pastes/merge.py gives each its place among the others.
    """
    seen = tuple(observed(gpu, fields[at] if at < len(fields) else None) for at, gpu in enumerate(gpus))
    virtual = True if any(is_virtual(one) for one in fields) else None
    return Part(
        facts=Facts(
            nvml=NvmlReading(driver_version=driver, nvml_version=None, cuda_version=cuda, gpus=tuple(gpus)),
            observed=Observations(
                gpus=seen, host=ObservedHost(driver=driver, virtual=virtual), environment=environment or {}
            ),
        ),
        messages=tuple(messages),
        looked_at=tuple(dict.fromkeys((*_looked_at(gpus), *extra))),
    )


def _looked_at(gpus: Sequence[Gpu]) -> list[str]:
    counts = {
        "ECC error counters": sum(gpu.health.ecc_counts.volatile_uncorrected is not None for gpu in gpus),
        "row remapping": sum(gpu.health.row_remap is not None for gpu in gpus),
        "retired pages": sum(gpu.health.retired_pages is not None for gpu in gpus),
        "clock event reasons": sum(gpu.health.clocks_event_reasons is not None for gpu in gpus),
        "temperatures": sum(gpu.health.temperature_c is not None for gpu in gpus),
        "power limits": sum(None not in (gpu.health.power_limit_w, gpu.health.power_default_w) for gpu in gpus),
        "PCIe links": sum(None not in (gpu.pcie.width, gpu.pcie.max_width) for gpu in gpus),
        "MIG mode": sum(gpu.health.mig is not None for gpu in gpus),
        "compute mode": sum(gpu.health.compute_mode is not None for gpu in gpus),
        "NVLinks": sum(bool(gpu.nvlinks) for gpu in gpus),
    }
    found = [f"{what} of {counted(count, 'GPU')}" for what, count in counts.items() if count]
    return found or ([f"names of {counted(len(gpus), 'GPU')}"] if gpus else [])
