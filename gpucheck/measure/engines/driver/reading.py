"""Read what the CUDA driver API reports of all devices, as a program: ``python -m ...reading``.

The CUDA driver can hang or crash, and a process that used it cannot be forked any more.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from gpucheck.host.simulated import preload
from gpucheck.measure.engines.driver.calls import Calls, CudaError, MissingCall, missing, not_opened
from gpucheck.measure.engines.driver.gpu import PTX
from gpucheck.measure.values import NotOpened
from gpucheck.model.full_record import CudaDevice, CudaFailure, CudaGap, CudaReading, IntMatrix
from gpucheck.processes.environment import copying_environment
from gpucheck.processes.lifeline import reply

ATTRIBUTE, P2P_ATTRIBUTE = "CU_DEVICE_ATTRIBUTE_", "CU_DEVICE_P2P_ATTRIBUTE_"
NO_ATTRIBUTE = ("MAX", "INVALID")  # members of the enumeration that name no attribute


class _Reader:
    def __init__(self) -> None:
        self.gaps: list[CudaGap] = []
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, do: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        try:
            return do()
        finally:
            self.seconds[name] = round(time.perf_counter() - start, 6)

    def query(self, subject: str, call: str, *arguments: Any) -> Any:
        """Return the results of a call; None if it failed, which is a gap."""
        try:
            return self.calls(call, *arguments)
        except CudaError as error:
            self.gaps.append(CudaGap(call=call, subject=subject, code=error.code))
        except MissingCall:
            self.gaps.append(CudaGap(call=call, subject=subject, code=None))
        return None

    def read(self) -> CudaReading:
        """Read everything. Raises ModuleNotFoundError, NotOpened."""
        preload("libcuda.so.1")
        self.calls: Calls = self.timed("import", Calls)
        from cuda import bindings

        try:
            self.timed("cuInit", lambda: self.calls("cuInit", 0))
        except CudaError as error:
            raise not_opened(error, "") from error
        except MissingCall as error:
            raise missing(error, None, bindings.__version__) from error
        number = self.query("driver", "cuDriverGetVersion")
        places = range(self.query("driver", "cuDeviceGetCount") or 0)
        devices = [self.query(f"device {place}", "cuDeviceGet", place) for place in places]
        names = self.calls.names
        return CudaReading(
            driver=f"{number // 1000}.{number % 1000 // 10}" if number else None,
            bindings=bindings.__version__,
            devices=tuple(self._device(place, device) for place, device in zip(places, devices, strict=True)),
            can_access=self._matrix(devices, "cuDeviceCanAccessPeer"),
            p2p={
                name: self._matrix(devices, "cuDeviceGetP2PAttribute", member)
                for name, member in _members(names.CUdevice_P2PAttribute, P2P_ATTRIBUTE)
            },
            seconds=self.seconds,
            gaps=tuple(self.gaps),
        )

    def _device(self, place: int, device: Any) -> CudaDevice:
        subject = f"device {place}"

        def text(value: bytes | None) -> str | None:
            return None if value is None else value.split(b"\0")[0].decode("utf-8", "replace")

        attributes = {}
        for name, member in _members(self.calls.names.CUdevice_attribute, ATTRIBUTE):
            value = self.query(f"{subject} {name}", "cuDeviceGetAttribute", member, device)
            if value is not None:
                attributes[name] = int(value)
        uuid = self.query(subject, "cuDeviceGetUuid", device)
        context = self.timed(f"context {place}", lambda: self.query(subject, "cuDevicePrimaryCtxRetain", device))
        memory = None
        if context is not None:
            self.query(subject, "cuCtxSetCurrent", context)
            memory = self.query(subject, "cuMemGetInfo")
            kernels = PTX.read_bytes() + b"\0"
            self.timed(f"kernels {place}", lambda: self.query(subject, "cuModuleLoadData", kernels))
        total = self.query(subject, "cuDeviceTotalMem", device)
        return CudaDevice(
            name=text(self.query(subject, "cuDeviceGetName", 256, device)),
            bus_id=text(self.query(subject, "cuDeviceGetPCIBusId", 32, device)),
            uuid=None if uuid is None else _uuid(bytes(uuid.bytes)),
            memory_bytes=None if total is None else int(total),
            free_bytes=None if memory is None else int(memory[0]),
            attributes=attributes,
        )

    def _matrix(self, devices: Sequence[Any], call: str, *before: Any) -> IntMatrix:
        def cell(a: int, b: int) -> int | None:
            if a == b:
                return None
            value = self.query(f"device {a} to {b}", call, *before, devices[a], devices[b])
            return None if value is None else int(value)

        places = range(len(devices))
        return tuple(tuple(cell(a, b) for b in places) for a in places)


def _members(enumeration: Any, prefix: str) -> list[tuple[str, Any]]:
    """Return the attributes by name; of several names for one number the last, which is the current one."""
    found = {int(member): (name.removeprefix(prefix), member) for name, member in enumeration.__members__.items()}
    return [one for _, one in sorted(found.items()) if one[0] not in NO_ATTRIBUTE]


def _uuid(digits: bytes) -> str:
    text = digits.hex()
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def main() -> None:
    """Write one line of JSON to stdout."""
    kept, _ = copying_environment(os.environ)
    os.environ.clear()
    os.environ.update(kept)
    answer: CudaReading | CudaFailure
    try:
        answer = _Reader().read()
    except ModuleNotFoundError as error:
        answer = CudaFailure(why=f"the Python package of {error.name} is missing", fix="pip install cuda-bindings")
    except NotOpened as error:
        answer = CudaFailure(why=str(error), fix=error.finding.fix)
    reply(sys.stdout.fileno(), answer)


if __name__ == "__main__":
    main()
