"""pynvml behind one place that announces each call and keeps what was refused."""

from collections.abc import Callable
from typing import Any

import pynvml

from gpucheck.model import NvmlGap

# Told before each call: its name and its subject. A child passes it on, so that a hang or a crash has a name.
Entering = Callable[[str, str], None]
# INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND: past the last NVLink
NOT_THERE = (2, 3, 13)
UINT, ULONG, ULONG_LONG = 1, 2, 3  # NVML_VALUE_TYPE_*: the unsigned types, which all counters and speeds have
SLOTS = {UINT: "uiVal", ULONG: "ulVal", ULONG_LONG: "ullVal"}


class Calls:
    """One pass. entered: the call that was last entered. gaps: what was refused so far."""

    def __init__(self, entering: Entering) -> None:
        self.entering = entering
        self.entered = ""
        self.gaps: list[NvmlGap] = []

    def must(self, call: str, subject: str, *arguments: Any) -> Any:
        """The answer. Raises NVMLError."""
        self.entered = call
        self.entering(call, subject)
        function = getattr(pynvml, call, None)
        if function is None:  # a binding older than the call
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return function(*arguments)

    def ask(self, call: str, subject: str, *arguments: Any) -> Any:
        """The answer, or None and a gap."""
        try:
            return self.must(call, subject, *arguments)
        except pynvml.NVMLError as error:
            self.refused(call, subject, error)
            return None

    def refused(self, call: str, subject: str, error: Any) -> None:
        """Keep a refusal. error: an NVMLError."""
        self.gaps.append(NvmlGap(call=call, subject=subject, code=error.value, name=type(error).__name__))

    def fields(self, subject: str, handle: Any, names: tuple[str, ...], scope: int = 0) -> dict[str, int | None]:
        """Field values by the binding's names for them, such as ``NVML_FI_DEV_PCIE_REPLAY_COUNTER``.

        scope: the link, for fields of one link. Each value has a return code of its own, and each refusal is a gap.
        """
        known = [name for name in names if hasattr(pynvml, name)]
        for name in names:
            if name not in known:
                self.refused(name, subject, pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND))
        answer: dict[str, int | None] = dict.fromkeys(names)
        wanted = [(getattr(pynvml, name), scope) for name in known]
        values = self.ask("nvmlDeviceGetFieldValues", subject, handle, wanted) if wanted else None
        for name, value in zip(known, values or (), strict=False):
            if value.nvmlReturn != pynvml.NVML_SUCCESS:
                self.refused(name, subject, pynvml.NVMLError(value.nvmlReturn))
            elif value.valueType in SLOTS:
                answer[name] = int(getattr(value.value, SLOTS[value.valueType]))
        return answer
