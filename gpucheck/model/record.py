"""What a report stores of each GPU and port, so that a later report can show what changed: a view of the facts."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from gpucheck.model.answer import Answer
from gpucheck.model.facts import Facts
from gpucheck.model.host.hardware import Gpu, NvLink
from gpucheck.model.host.readings import System
from gpucheck.model.topology import Topology

RECORD = "gpu-health"
"""The step that takes the record, and its place in a report's measurements."""
UPTIME = "/proc/uptime"
# By key of a GPU: the field of Gpu or of Health. Memory is in MiB. An NVLink is a list, as eight GPUs have 144.
GPU = {"bus_id": "pci_bus_id", "memory_mib": "memory_bytes"}
GPU |= {name: name for name in ("uuid", "name", "device_id", "pcie")}
HEALTH = {"memory_used_mib": "memory_used_bytes", "ecc_errors": "ecc_counts"}
HEALTH |= {
    name: name
    for name in (
        "serial", "vbios", "persistence", "compute_mode", "mig", "ecc", "power_limit_w", "power_w", "temperature_c",
        "temperature_slowdown_c", "sm_clock_mhz", "max_sm_clock_mhz", "processes", "pcie_errors", "row_remap",
        "retired_pages",
    )
}  # fmt: skip
LINK = ("link", "active", "replay_errors", "recovery_errors", "crc_errors", "counts")
MIB = 20


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    """``measurements["gpu-health"]``. uptime_hours: since boot, None if unknown. nics: an RDMA device each,
    None if they could not be read.
    """

    uptime_hours: float | None = None
    module_flavour: str | None = None
    gpus: tuple[dict[str, Any], ...] = ()
    ports: tuple[dict[str, Any], ...] = ()
    nics: tuple[dict[str, Any], ...] | None = None


def stored(facts: Facts, uptime_hours: float | None) -> dict[str, Any]:
    on_path = {bus_id for device in facts.pci if device.is_nvidia_gpu for bus_id in (device.bus_id, *device.path)}
    kept: dict[str, Any] = msgspec.to_builtins(
        _Stored(
            uptime_hours=None if uptime_hours is None else round(uptime_hours, 3),
            module_flavour=facts.driver.loaded_flavour,
            gpus=tuple(map(_row, facts.gpus)),
            ports=tuple(
                _reported({"bus_id": one.bus_id, "link": one.link, "aer": one.aer})
                for one in facts.pci
                if one.bus_id in on_path
            ),
            nics=None if facts.missing(["rdma"]) else tuple(_nics(facts)),
        )
    )
    return kept


def _nics(facts: Facts) -> Iterable[dict[str, Any]]:
    named, counters = {device.name: device for device in facts.rdma or ()}, facts.counters_at_start or ()
    for one in facts.pci:
        for device in (named[name] for name in one.infiniband_names if name in named):
            own = [port for port in counters if port.port.rpartition("/")[0] == device.name]
            yield _reported({"bus_id": one.bus_id, "link": one.link, "device": device, "counters": own})


def _row(gpu: Gpu) -> dict[str, Any]:
    row = {key: getattr(gpu, name) for key, name in GPU.items()}
    row |= {key: getattr(gpu.health, name) for key, name in HEALTH.items()}
    row |= {key: row[key] >> MIB for key in row if key.endswith("_mib") and row[key] is not None}
    return _reported(row) | ({"nvlinks": tuple(map(_link, gpu.nvlinks))} if gpu.nvlinks else {})


def _reported(row: dict[str, Any]) -> dict[str, Any]:
    plain = msgspec.to_builtins(row)
    return {key: value for key, value in plain.items() if value is not None and value != {}}


def _link(link: NvLink) -> list[Any]:
    """Of NVLink 5 what is not zero, and how often it recovered."""
    values = [getattr(link, name) for name in LINK]
    if link.counts is not None:
        counts = msgspec.structs.asdict(link.counts)
        values[-1] = {name: n for name, n in counts.items() if n and not name.endswith("_ber")}
        values[-1]["recoveries"] = link.recoveries
    while values[-1] is None:
        values.pop()
    return values


def facts_of(measurements: Mapping[str, Any]) -> Facts | None:
    """Return what a report stores as facts again; None if it is older than the record, or the step was skipped."""
    if RECORD not in measurements:
        return None
    try:
        kept = msgspec.convert(measurements[RECORD], _Stored, strict=False)
        cards = (
            {"bus_id": row["bus_id"], "link": row.get("link", {}), "infiniband_names": [row["device"]["name"]]}
            for row in kept.nics or ()
        )
        reading = {"driver_version": None, "nvml_version": None, "cuda_version": None, "gpus": [*_gpus(kept.gpus)]}
        facts: dict[str, Any] = {
            "nvml": {"type": "reading", **reading},
            "pci": [{"vendor_id": "", "device_id": "", "class_id": "", **port} for port in (*kept.ports, *cards)],
            "driver": {"loaded_flavour": kept.module_flavour},
            "texts": {UPTIME: None if kept.uptime_hours is None else f"{3600 * kept.uptime_hours}"},
        }
        if kept.nics is not None:
            facts["rdma"] = [row["device"] for row in kept.nics]
            facts["counters_at_start"] = [one for row in kept.nics for one in row["counters"]]
        return msgspec.convert(facts, Facts, strict=False)
    except (msgspec.ValidationError, ValueError, TypeError, KeyError):
        return None  # of another version or written by hand


def _gpus(rows: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    for index, row in enumerate(rows):
        row = row | {key: row[key] << MIB for key in row if key.endswith("_mib") and row[key] is not None}
        gpu = {name: row[key] for key, name in GPU.items() if key in row}
        health = {name: row[key] for key, name in HEALTH.items() if key in row}
        links = [dict(zip(LINK, link, strict=False)) for link in row.get("nvlinks", ())]
        yield {"index": index, **gpu, "health": health, "nvlinks": links}


SCHEMA = "gpucheck.report/1"


class Partial(msgspec.Struct, frozen=True, kw_only=True):
    """Set if this session may use some of the GPUs of the host only. usable, hidden: their bus ids.

    by: what hides the others: a ``device-cgroup`` (a step of Slurm, a unit of systemd) or a ``container``.
    """

    usable: tuple[str, ...]
    hidden: tuple[str, ...]
    by: Literal["device-cgroup", "container"]


class Report(Answer, frozen=True, kw_only=True):
    """The answer of ``gpucheck verify --format json``.

    versions: what is installed and active, by component.
    measurements: by check name, numbers with their unit in the key.
    not_proven: what the level includes and this run did not show, each with the reason.
    attributes: what this host may have in common with others of its fleet, by name: ``bios``, ``vbios``, ``uplink``...
    partial: the report is that of a session with some of the GPUs, and states nothing about the others.
    interrupted: a signal ended the run; the findings are those of the steps before it, and one UNKNOWN names the rest.
    """

    schema: str = SCHEMA
    system: System
    versions: dict[str, str | None]
    measurements: dict[str, dict[str, Any]]
    topology: Topology | None
    not_proven: tuple[str, ...] = ()
    attributes: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    interrupted: bool = False
    partial: Partial | None = None
