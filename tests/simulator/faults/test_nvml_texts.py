"""Texts of NVML that are not UTF-8, empty or garbage: of the call that is named alone."""

import ctypes
from typing import Any

import pytest

from gpucheck.simulator.faults.nvml import CALLS
from tests.simulator.helpers import handle

PID = 4711
# Where in a struct the text is and how much room it has there, and the struct's version.
IN_STRUCT = {
    "nvmlDeviceGetPciInfo_v3": (36, 32, 0),
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": (36, 32, 0),
    "nvmlDeviceGetPciInfoExt": (32, 32, 0x01000040),
    "nvmlSystemGetDriverBranch": (4, 80, 0x01000054),
}
NEWEST = {"nvmlDeviceGetPciInfo": "_v3", "nvmlDeviceGetNvLinkRemotePciInfo": "_v2"}
WHICH = {"nvmlSystemGetProcessName": PID, "nvmlDeviceGetNvLinkRemotePciInfo": 0}


def room(call: str) -> int:
    return IN_STRUCT.get(call + NEWEST.get(call, ""), (0, 96, 0))[1]


def text_of(library: Any, call: str, gpu: Any) -> bytes:
    """What the function leaves in its buffer, as C sees it."""
    arguments: tuple[Any, ...] = () if call.startswith("nvmlSystem") else (gpu,)
    arguments += (WHICH[call],) if call in WHICH else ()
    function = call + NEWEST.get(call, "")
    place, length, version = IN_STRUCT.get(function, (0, 96, 0))
    out = ctypes.create_string_buffer(version.to_bytes(4, "little"), 96)
    assert getattr(library, function)(*arguments, out, length) == 0, call
    return out.raw[place : place + length].partition(b"\0")[0]


@pytest.mark.parametrize("call", CALLS)
def test_a_text_is_not_utf8_empty_or_garbage(activate, call):
    """Of the GPU that is named, and of no other call."""
    healthy, texts = b"", {}
    of_gpu = not call.startswith("nvmlSystem")
    for kind in (None, "latin1", "empty", "garbage"):
        faults = [f"busy-gpu:gpu=0,pid={PID}"]
        faults += [f"nvml-text:call={call},kind={kind}" + (",gpu=0" if of_gpu else "")] if kind else []
        library = ctypes.CDLL(str(activate("a100-pcie-x2-nvlink", faults) / "lib/libnvidia-ml.so.1"))
        assert library.nvmlInit_v2() == 0
        gpus = [handle(library, index) for index in range(2)]
        shown = {name: text_of(library, name, gpus[0]) for name in CALLS}
        others = text_of(library, call, gpus[1])
        library.nvmlShutdown()
        if kind is None:
            healthy, texts = others, shown
            continue
        assert {name for name in CALLS if shown[name] != texts[name]} == {call}
        assert others == (healthy if of_gpu else shown[call])
        noise = (b"\xff\x01" * 48)[: room(call) - 1]
        assert shown[call] == {"latin1": b"\xe9" + texts[call][1:], "empty": b"", "garbage": noise}[kind]
        if kind != "empty":
            with pytest.raises(UnicodeDecodeError):
                shown[call].decode()
