"""Peer access between GPUs: the pairs that support it, and the pairs that have it during a step."""

from collections.abc import Iterable, Sequence
from itertools import permutations

from gpucheck.measure.engines.driver.calls import Calls, CudaError
from gpucheck.measure.engines.driver.gpu import CudaGpu

ALREADY_ENABLED, NOT_ENABLED = 704, 705
Pair = tuple[int, int]


class Peers:
    """offered: ordered pairs (accessing GPU, GPU with the memory), by position. enabled: pairs with peer access."""

    def __init__(self, calls: Calls, gpus: Sequence[CudaGpu]) -> None:
        self._calls, self._gpus = calls, gpus
        places = permutations(range(len(gpus)), 2)
        self.offered = {(a, b) for a, b in places if calls("cuDeviceCanAccessPeer", gpus[a].device, gpus[b].device)}
        self.enabled: set[Pair] = set()

    def only(self, pairs: Iterable[Pair]) -> None:
        """Enable both directions of these pairs if supported, and disable all others. Raises CudaError.

        A GPU without NVSwitch maps at most eight peers, so a pair has peer access only during its step.
        """
        wanted = {way for a, b in pairs for way in ((a, b), (b, a))} & self.offered
        for way in sorted(self.enabled - wanted):
            self._switch("cuCtxDisablePeerAccess", way, NOT_ENABLED)
            self.enabled.discard(way)
        for way in sorted(wanted - self.enabled):
            self._switch("cuCtxEnablePeerAccess", way, ALREADY_ENABLED)
            self.enabled.add(way)

    def _switch(self, call: str, way: Pair, done_before: int) -> None:
        accessing, owner = (self._gpus[place] for place in way)
        accessing.use()
        try:
            self._calls(call, owner.context, *((0,) if call == "cuCtxEnablePeerAccess" else ()))
        except CudaError as error:
            if error.code != done_before:
                raise
