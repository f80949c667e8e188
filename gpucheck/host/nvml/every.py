"""Ask NVML everything that changes nothing, one JSON line a call: ``python -m gpucheck.host.nvml.every``.

A line is written before the next call: if the driver hangs or crashes in a call, all answers until then are there, and
the last line, which has no code, names the call. Names and signatures are those of the installed nvidia-ml-py.
"""

import ctypes
import inspect
import json
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

from gpucheck.host.simulated import preload

FIELD_IDS = range(1, 321)  # of nvml.h 615, and some more
# What is asked for by the name of a parameter; a call with another parameter is left out.
VALUES: dict[str, range] = {
    "type": range(4),
    "id": range(4),
    "sensor": range(1),
    "threshold": range(8),
    "fan": range(2),
    "infoRomObject": range(5),
    "errorType": range(2),
    "counterType": range(2),
    "locationType": range(9),
    "sourceFilter": range(2),
    "apiType": range(2),
    "perfPolicyType": range(12),
    "encoderQueryType": range(3),
    "counter": range(5),
    "link": range(18),
    "capability": range(6),
}
# Calls that fill a structure of the caller's: the newest that the package has.
STRUCTURES = {
    "nvmlDeviceGetGpuFabricInfoV": ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"),
    "nvmlDeviceGetSramEccErrorStatus": ("c_nvmlEccSramErrorStatus_v1_t",),
    "nvmlDeviceGetPlatformInfo": ("c_nvmlPlatformInfo_v2_t", "c_nvmlPlatformInfo_v1_t"),
    "nvmlDeviceGetNvLinkInfo": ("c_nvmlNvLinkInfo_v2_t", "c_nvmlNvLinkInfo_v1_t"),
    "nvmlDeviceGetNvlinkBwMode": ("c_nvmlNvlinkGetBwMode_v1_t",),
    "nvmlDeviceGetNvlinkSupportedBwModes": ("c_nvmlNvlinkSupportedBwModes_v1_t",),
    "nvmlDeviceGetCapabilities": ("c_nvmlDeviceCapabilities_v1_t",),
    "nvmlDeviceGetRemappedRows_v2": ("c_nvmlRemappedRowsInfo_v2_t",),
}
# Handles of other things, certificates, and what a process did.
LEFT_OUT = re.compile(r"Handle|Certificate|Attestation|Accounting|Vgpu|ProcessDetail|TopologyNearest|CPER")
IDENTIFIES = re.compile(r"uuid|guid|serial", re.IGNORECASE)
DEVICE = ("handle", "device")
P2P = range(6)  # nvmlGpuP2PCapsIndex_t
END = '{"call": "end"}'
MANY = 4  # equal values of an array are written once from here on

Call = tuple[str, tuple[Any, ...], Callable[[], Any]]


def _calls(nvml: Any, handle: Any) -> Iterator[Call]:
    """Every call about one device, or about the host where handle is None: name, arguments, and what makes it."""
    prefix = "nvmlSystemGet" if handle is None else "nvmlDeviceGet"
    for name, function in sorted(vars(nvml).items()):
        if not name.startswith(prefix) or not inspect.isfunction(function) or LEFT_OUT.search(name):
            continue
        wanted = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        if handle is not None and (not wanted or wanted.pop(0) not in DEVICE):
            continue
        first = () if handle is None else (handle,)
        if name in STRUCTURES:
            kind = next((getattr(nvml, one) for one in STRUCTURES[name] if hasattr(nvml, one)), None)
            if kind is not None:
                yield name, (kind.__name__,), partial(_filled, partial(function, *first), kind())
        elif all(one in VALUES for one in wanted):
            for values in product(*(VALUES[one] for one in wanted)):
                yield name, values, partial(function, *first, *values)
    if handle is not None:
        for field in FIELD_IDS:
            get = nvml.nvmlDeviceGetFieldValues
            yield get.__name__, (field,), partial(get, handle, [field])


def _filled(call: Callable[[Any], Any], structure: ctypes.Structure) -> Any:
    return call(ctypes.byref(structure)), structure


def plain(value: Any, name: str = "") -> Any:
    """Return an answer as JSON has it, without what identifies a device. name: of the field or the call."""
    if isinstance(value, ctypes.Structure):
        return {field[0]: plain(getattr(value, field[0]), field[0]) for field in getattr(value, "_fields_", ())}
    if isinstance(value, ctypes.Union):
        return bytes(value).hex()
    if IDENTIFIES.search(name):
        return (
            "zeros" if not any(bytes(value) if isinstance(value, (bytes, ctypes.Array)) else str(value)) else "hidden"
        )
    if isinstance(value, (ctypes.Array, list, tuple)):
        found = [plain(one) for one in value]
        alike = len(found) >= MANY and len(set(map(str, found))) == 1
        return [found[0], f"{len(found)} times"] if alike else found
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


class _Printer:
    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._lacking: set[str] = set()

    def ask(self, subject: str, name: str, arguments: tuple[Any, ...], do: Callable[[], Any]) -> Any:
        """Return what the call returns, None if it failed. A call that the library lacks is made once."""
        if name in self._lacking:
            return None
        print(json.dumps({"subject": subject, "call": name, "arguments": arguments})[:-1], end="", flush=True)
        began, answer = time.perf_counter(), None
        rest: dict[str, Any] = {"code": 0}
        try:
            answer = do()
        except self._nvml.NVMLError as error:
            rest = {"code": int(error.value)}
            if rest["code"] == self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                self._lacking.add(name)
        except Exception as error:  # a wrapper of nvidia-ml-py that cannot be called so
            rest = {"code": None, "why": f"{type(error).__name__}: {error}"}
        rest["us"] = round((time.perf_counter() - began) * 1e6)
        if answer is not None and "Handle" not in name:
            rest["value"] = plain(answer, name)
        print(", " + json.dumps(rest)[1:], flush=True)
        return answer


def main() -> None:
    import pynvml

    preload()
    ask = _Printer(pynvml).ask
    ask("host", "nvmlInit", (), pynvml.nvmlInit)
    for call in _calls(pynvml, None):
        ask("host", *call)
    get, handles = pynvml.nvmlDeviceGetHandleByIndex, {}
    for number in range(ask("host", "nvmlDeviceGetCount", (), pynvml.nvmlDeviceGetCount) or 0):
        handle = ask(f"GPU {number}", get.__name__, (number,), partial(get, number))
        if handle is not None:
            handles[number] = handle
    for number, handle in handles.items():
        for call in _calls(pynvml, handle):
            ask(f"GPU {number}", *call)
    status = pynvml.nvmlDeviceGetP2PStatus
    for (a, one), (b, other), what in product(handles.items(), handles.items(), P2P):
        if a != b:
            ask(f"GPU {a} to {b}", status.__name__, (what,), partial(status, one, other, what))
    print(END, flush=True)


if __name__ == "__main__":
    main()
