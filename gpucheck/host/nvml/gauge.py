"""Quick readings of one GPU under load: a few NVML calls in the calling process, which a deadline must guard."""

from typing import Any

import msgspec

from gpucheck.model.compute import Sample

MEMORY_TEMPERATURE = "NVML_FI_DEV_MEMORY_TEMP"


class LinkReading(msgspec.Struct, frozen=True, kw_only=True):
    """The PCIe link of one GPU, and the reasons that hold its clock, as in Health. None: not reported."""

    bus_id: str
    generation: int | None = None
    width: int | None = None
    reasons: tuple[str, ...] | None = None


class Gauge:
    """One GPU, by its bus id."""

    def __init__(self, bus_id: str, handle: Any, calls: Any) -> None:
        self._bus_id, self._handle, self._calls = bus_id, handle, calls

    @classmethod
    def of(cls, bus_id: str) -> "Gauge | None":
        """Return the gauge of a GPU, None if NVML does not respond or does not support it."""
        import pynvml

        from gpucheck.host.nvml.calls import Calls

        calls = Calls(lambda _call, _subject: None)
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return None
        handle, refusal = calls.attempt("nvmlDeviceGetHandleByPciBusId", bus_id, bus_id.encode())
        return None if refusal is not None or handle is None else cls(bus_id, handle, calls)

    def memory_limit_c(self) -> float | None:
        """Return the temperature of the memory at which the GPU slows down, None if it is not reported."""
        import pynvml

        limit = pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX
        degrees = self._calls.query("nvmlDeviceGetTemperatureThreshold", self._bus_id, self._handle, limit)
        self._calls.gaps.clear()
        return float(degrees) if degrees else None

    def read(self) -> Sample:
        """Return clocks, watts, degrees and the reasons that hold the clock; None for what is not reported."""
        import pynvml

        from gpucheck.host.nvml.health import SLOWDOWN_MARGIN, margin_c

        subject = self._bus_id

        def query(call: str, *arguments: Any) -> Any:
            return self._calls.query(call, subject, self._handle, *arguments)

        milliwatts = query("nvmlDeviceGetPowerUsage")
        celsius = query("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU)
        fields = self._calls.fields(subject, self._handle, (MEMORY_TEMPERATURE, SLOWDOWN_MARGIN))
        sample = Sample(
            at=0.0,
            sm_clock_mhz=query("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=query("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
            power_w=None if milliwatts is None else milliwatts / 1000,
            temperature_c=celsius,
            margin_c=margin_c(query, celsius, fields[SLOWDOWN_MARGIN]),
            memory_temperature_c=fields[MEMORY_TEMPERATURE] or None,
            reasons=self._reasons(),
        )
        self._calls.gaps.clear()
        return sample

    def link(self) -> LinkReading:
        reading = LinkReading(
            bus_id=self._bus_id,
            generation=self._calls.query("nvmlDeviceGetCurrPcieLinkGeneration", self._bus_id, self._handle),
            width=self._calls.query("nvmlDeviceGetCurrPcieLinkWidth", self._bus_id, self._handle),
            reasons=self._reasons(),
        )
        self._calls.gaps.clear()
        return reading

    def _reasons(self) -> tuple[str, ...] | None:
        from gpucheck.host.nvml.health import REASON_CALLS, named_reasons

        return named_reasons(self._calls.newest(self._bus_id, *((call, self._handle) for call in REASON_CALLS)))

    def errors(self) -> dict[str, int]:
        """Return error counters by name, those that this GPU has: ECC, PCIe and NVLink."""
        import pynvml

        from gpucheck.host.nvml.health import PCIE_FIELDS
        from gpucheck.host.nvml.reading import nvlinks

        subject, handle = self._bus_id, self._handle
        query = self._calls.query
        corrected, uncorrected = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        volatile = pynvml.NVML_VOLATILE_ECC
        capability = query("nvmlDeviceGetCudaComputeCapability", subject, handle)
        links = nvlinks(self._calls, subject, handle, major=capability[0] if capability else None, health=True)
        fields = self._calls.fields(subject, handle, PCIE_FIELDS)
        found = {
            "ecc_corrected": query("nvmlDeviceGetTotalEccErrors", subject, handle, corrected, volatile),
            "ecc_uncorrected": query("nvmlDeviceGetTotalEccErrors", subject, handle, uncorrected, volatile),
            "pcie_replays": query("nvmlDeviceGetPcieReplayCounter", subject, handle),
            **{f"pcie_{name}": fields[field] for name, field in zip(_PCIE, PCIE_FIELDS, strict=True)},
            "nvlink_crc": _sum(link.crc_errors for link in links),
            "nvlink_replays": _sum(link.replay_errors for link in links),
            "nvlink_recoveries": _sum(
                link.recovery_errors if link.recovery_errors is not None else link.counts and link.counts.recoveries
                for link in links
            ),
        }
        self._calls.gaps.clear()
        return {name: value for name, value in found.items() if value is not None}


_PCIE = ("correctable", "non_fatal", "fatal")


def _sum(counts: Any) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
