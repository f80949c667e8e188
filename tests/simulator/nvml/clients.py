"""Run by test_clients in a process of its own: what gpustat, nvitop and gpucheck say of the machine, as JSON."""

import contextlib
import io
import json
import sys
from typing import Any

import pynvml


def by_gpustat() -> list[dict[str, Any]]:
    from gpustat.core import GPUStatCollection

    printed = io.StringIO()
    GPUStatCollection.new_query().print_json(printed)
    rows: list[dict[str, Any]] = json.loads(printed.getvalue())["gpus"]
    return [
        {
            "name": row["name"],
            "uuid": row["uuid"],
            "memory_total_mib": row["memory.total"],
            "memory_used_mib": row["memory.used"],
            "temperature": row["temperature.gpu"],
            "power_limit_w": row["enforced.power.limit"],
            "utilization": row["utilization.gpu"],
            "processes": [[process["pid"], process["gpu_memory_usage"]] for process in row["processes"] or ()],
        }
        for row in rows
    ]


def by_nvitop() -> list[dict[str, Any]]:
    from nvitop import NA, Device

    def known(value: Any) -> Any:
        return None if value is NA else value

    return [
        {
            "name": device.name(),
            "uuid": device.uuid(),
            "bus_id": device.bus_id(),
            "memory_total_mib": device.memory_total() >> 20,
            "memory_used_mib": device.memory_used() >> 20,
            "temperature": known(device.temperature()),
            "power_limit_w": known(device.power_limit()) // 1000,
            "utilization": known(device.gpu_utilization()),
            "processes": [[pid, process.gpu_memory() >> 20] for pid, process in device.processes().items()],
            "mig": [[mig.name(), mig.uuid(), mig.memory_total() >> 20] for mig in device.mig_devices()],
        }
        for device in Device.all()
    ]


def by_pynvml() -> list[dict[str, Any]]:
    """As gpucheck asks, and in the same words."""
    from gpucheck.host.nvml.reading import read_nvml
    from gpucheck.model import NvmlReading

    reading = read_nvml(lambda call, subject: None)
    assert isinstance(reading, NvmlReading), reading
    pynvml.nvmlInit()
    rows = []
    for gpu in reading.gpus:
        handle = pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        rows.append(
            {
                "name": gpu.name,
                "uuid": gpu.uuid,
                "bus_id": gpu.pci_bus_id,
                "memory_total_mib": memory.total >> 20,
                "memory_used_mib": memory.used >> 20,
                "temperature": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
                "power_limit_w": pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) // 1000,
                "utilization": _utilization(handle),
                "processes": [[process.pid, process.usedGpuMemory >> 20] for process in processes],
                "mig": [_mig(handle, index) for index in range(_migs(handle))],
            }
        )
    pynvml.nvmlShutdown()
    return rows


def _utilization(handle: Any) -> int | None:
    try:
        rates: int = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
    except pynvml.NVMLError_NotSupported:
        return None
    return rates


def _migs(handle: Any) -> int:
    count, most = 0, pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    with contextlib.suppress(pynvml.NVMLError_NotFound):
        while count < most:
            pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, count)
            count += 1
    return count


def _mig(handle: Any, index: int) -> list[Any]:
    mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(mig)
    return [pynvml.nvmlDeviceGetName(mig), pynvml.nvmlDeviceGetUUID(mig), memory.total >> 20]


def terminal(program: str) -> list[Any]:
    """The exit status and the text of ``gpustat`` or ``nvitop --once`` as a user runs them."""
    text, status = io.StringIO(), 0
    with contextlib.redirect_stdout(text):
        try:
            if program == "gpustat":
                from gpustat.cli import main as gpustat

                sys.argv = ["gpustat", "--no-color", "-cp"]
                gpustat(*sys.argv[1:])
            else:
                from nvitop.cli import main as nvitop

                sys.argv = ["nvitop", "--once", "--ascii"]
                status = nvitop()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
    return [status, text.getvalue()]


if __name__ == "__main__":
    # gpustat last: importing it replaces functions of pynvml.
    answer: dict[str, Any] = {"pynvml": by_pynvml(), "nvitop": by_nvitop()}
    shown = {"nvitop": terminal("nvitop")}
    answer |= {"gpustat": by_gpustat()}
    shown |= {"gpustat": terminal("gpustat")}
    json.dump(answer | {"terminal": shown}, sys.stdout)
