"""pynvml in one place: each call is announced, each failure is stored, and an older library is queried its own way."""

import ctypes
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import pynvml

from gpucheck.model import DEFECT, DEPRECATED, NOT_IN_LIBRARY, NvmlGap

# As NVML writes them (eight digits of domain) and as Linux does (four).
BUS_ID = re.compile(r"(?P<domain>[0-9a-f]{4,8}):(?P<rest>[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
NOTHING = 0xFFFFFFFF  # NVML's domain of a device that it does not know


def plain(value: str | bytes) -> str:
    """Return text; pynvml gives bytes or text, as the function and its release please."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    return text.encode(errors="replace").decode()


def raw_text(structure: Any, field: str) -> str:
    """Return a text field of one of pynvml's structures, which decode strictly where they are read as attributes."""
    return plain(ctypes.Structure.__getattribute__(structure, field))


def normal_bus_id(nvml: str) -> str | None:
    """Return NVML's ``00000000:3B:00.0`` as ``0000:3b:00.0``; None for anything else.

    NVML answers an empty text, unprintable bytes or all ones for a device that it cannot see (NCCL, src/graph/xml.cc).
    """
    found = BUS_ID.fullmatch(nvml.strip().lower())
    if found is None or int(found["domain"], 16) == NOTHING:
        return None
    return f"{int(found['domain'], 16):04x}:{found['rest']}"


def bits(words: Any) -> list[int]:
    """Return the numbers of the bits that are set in an array of 64-bit words; none where there is no array."""
    if words is None:
        return []
    return [64 * position + bit for position, word in enumerate(words) if word for bit in range(64) if word >> bit & 1]


# Called before each call with its name and its subject. A child passes both on, so that a hang or a crash has a name.
Entering = Callable[[str, str], None]
Made = TypeVar("Made")
UINT, ULONG, ULONG_LONG, SIGNED_LONG_LONG, SIGNED_INT, USHORT = 1, 2, 3, 4, 5, 6  # NVML_VALUE_TYPE_*; 0 is a double
SLOTS = {UINT: "uiVal", ULONG: "ulVal", ULONG_LONG: "ullVal", SIGNED_LONG_LONG: "sllVal", SIGNED_INT: "siVal"}
SLOTS |= {USHORT: "usVal"}
ERROR_CHARS = 200
INSUFFICIENT_SIZE = 7
NOT_AVAILABLE = 2**64 - 1
MOST_PROCESSES = 4096


class Calls:
    """One pass. entered: the call that was entered last. gaps: the calls that failed so far."""

    def __init__(self, entering: Entering) -> None:
        self.entering = entering
        self.entered = ""
        self.gaps: list[NvmlGap] = []

    def must(self, call: str, subject: str, *arguments: Any) -> Any:
        """Return the answer; text may be bytes. Raises NVMLError, and whatever the binding itself raises."""
        self.entered = call
        self.entering(call, subject)
        function = getattr(pynvml, call, None) or OLD.get(call)
        if function is None:  # a binding older than the call
            raise pynvml.NVMLError(NOT_IN_LIBRARY)
        # Without the binding's decorators: they decode text strictly, and a name in NVML need not be UTF-8
        # (nvitop#120, gpustat#170); and they hide that a function is missing behind an exception of their own.
        return getattr(function, "__wrapped__", function)(*arguments)

    def attempt(self, call: str, subject: str, *arguments: Any) -> tuple[Any, NvmlGap | None]:
        """Return the result, or None and the reason, which is not stored."""
        try:
            return self.must(call, subject, *arguments), None
        except pynvml.NVMLError as error:
            return None, gap(call, subject, error)
        except Exception as error:  # the binding cannot read what the library answered: this call's loss alone
            return None, defect(call, subject, error)

    def query(self, call: str, subject: str, *arguments: Any) -> Any:
        answer, refusal = self.attempt(call, subject, *arguments)
        if refusal is not None:
            self.gaps.append(refusal)
        return answer

    def newest(self, subject: str, *ways: tuple[Any, ...]) -> Any:
        """Return the answer of the first way, (call, *arguments), that this library has; a gap of the first if none."""
        first: NvmlGap | None = None
        for call, *arguments in ways:
            answer, refusal = self.attempt(call, subject, *arguments)
            if refusal is None:
                return answer
            first = first or refusal
            if refusal.code not in (NOT_IN_LIBRARY, DEPRECATED):
                self.gaps.append(refusal)
                return None
        if first is not None:
            self.gaps.append(first)
        return None

    def part(self, what: str, subject: str, make: Callable[[], Made], instead: Made) -> Made:
        """Return a part of the reading; what breaks in making it costs that part alone, and is kept as a gap."""
        try:
            return make()
        except Exception as error:
            self.gaps.append(defect(what, subject, error))
            return instead

    def version(self, call: str, subject: str) -> str | None:
        """Return a version; None, and a gap, for text that a version is not."""
        answer = self.query(call, subject)
        text = "" if answer is None else plain(answer).strip()
        if answer is not None and not (text.isascii() and text.isprintable() and text):
            self.gaps.append(defect(call, subject, ValueError(f"{text[:40]!r} is not a version")))
            return None
        return text or None

    def bus_id(self, subject: str, structure: Any) -> str | None:
        """Return the bus id in an nvmlPciInfo_t as Linux writes it; None, and a gap, for any other text."""
        text = raw_text(structure, "busId")
        found = normal_bus_id(text)
        if found is None:
            message = ValueError(f"bus id {text[:40]!r} cannot be read")
            self.gaps.append(defect("nvmlPciInfo_t.busId", subject, message))
        return found

    def fields(self, subject: str, handle: Any, names: tuple[str, ...], scope: int = 0) -> dict[str, int | None]:
        """Return field values by the binding's names for them, such as ``NVML_FI_DEV_PCIE_REPLAY_COUNTER``.

        scope: the link, for fields of one link. Each value has a return code of its own, and each failure is a gap.
        """
        answer: dict[str, int | None] = dict.fromkeys(names)
        known = [name for name in names if hasattr(pynvml, name)]
        for name in names:
            if name not in known:
                self.gaps.append(gap(name, subject, pynvml.NVMLError(NOT_IN_LIBRARY)))
        requests = [(getattr(pynvml, name), scope) for name in known]
        values = self.query("nvmlDeviceGetFieldValues", subject, handle, requests) if requests else None
        for name, value in zip(known, values or (), strict=False):
            if value.nvmlReturn != pynvml.NVML_SUCCESS:
                self.gaps.append(gap(name, subject, pynvml.NVMLError(value.nvmlReturn)))
            elif value.valueType == 0:
                answer[name] = int(value.value.dVal)
            elif value.valueType in SLOTS and hasattr(value.value, SLOTS[value.valueType]):
                answer[name] = int(getattr(value.value, SLOTS[value.valueType]))
            else:
                self.gaps.append(defect(name, subject, TypeError(f"value type {value.valueType} is not known")))
        return answer


def gap(call: str, subject: str, error: Any) -> NvmlGap:
    return NvmlGap(call=call, subject=subject, code=error.value, name=type(error).__name__)


def defect(call: str, subject: str, error: Exception) -> NvmlGap:
    """Return what could not be read for a reason that is not NVML's."""
    message = plain(f"{type(error).__name__}: {error}")[:ERROR_CHARS]
    return NvmlGap(call=call, subject=subject, code=DEFECT, name=message)


class Process(NamedTuple):
    """What nvmlProcessInfo_v1_t holds. usedGpuMemory: bytes, None where the driver does not count."""

    pid: int
    usedGpuMemory: int | None  # noqa: N815 - as the binding names it


class _ProcessInfo(ctypes.Structure):
    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


def _processes(symbol: str) -> Callable[[Any], list[Process]]:
    def call(handle: Any) -> list[Process]:
        function = pynvml._nvmlGetFunctionPointer(symbol)
        count = ctypes.c_uint(0)
        status = function(handle, ctypes.byref(count), None)
        if status == INSUFFICIENT_SIZE:
            count.value = min(count.value * 2 + 5, MOST_PROCESSES)
            found = (_ProcessInfo * count.value)()
            status = function(handle, ctypes.byref(count), found)
        if status != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(status)
        memory = ((p.pid, p.usedGpuMemory) for p in (found[: count.value] if count.value else ()))
        return [Process(pid, None if used == NOT_AVAILABLE else used) for pid, used in memory]

    return call


# Functions of old drivers for which nvidia-ml-py has no wrapper any more; the structure is that of NVIDIA's nvml.h.
OLD: dict[str, Callable[..., Any]] = {
    f"{call}_v1": _processes(call)
    for call in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
}
