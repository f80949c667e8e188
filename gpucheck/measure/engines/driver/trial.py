"""Try the driver engine where it never ran: kernels with known answers, ways to time, the launch queue. ``python -m``

One JSON line a result, written at once. Nothing is evaluated here, but a kernel's answer is right or wrong.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, pairwise, product
from typing import Any

from gpucheck.measure.engines.driver.calls import CudaError, MissingCall
from gpucheck.measure.engines.driver.engine import LINK_STRIDE, DriverEngine, Gate, Lane, SpinGate, timed_by_events
from gpucheck.measure.engines.driver.gpu import CudaGpu
from gpucheck.measure.engines.pattern import MASK, words_at
from gpucheck.measure.values import MIB, NotTimed, Setup
from gpucheck.model.device import Device

WORDS = (0, 1, 27, 1027, 300_001)  # none, one, less than a block, several blocks, more than the threads of a GPU
KEY = 0x0123456789ABCDEF
PIECES_MIB = (16, 32, 64)
COPIED_MIB = (1, 16, 64, 256, 512)
QUEUED = (100, 500, 1000, 1023, 1024, 2000, 5000, 10_000)
EVENTS = 400
BUFFER = max(COPIED_MIB) * MIB
SAMPLES = 7
Line = dict[str, Any]
Way = Callable[[Sequence[Lane], Sequence[int]], tuple[float, ...]]


def ways(engine: DriverEngine) -> dict[str, Way]:
    """Each way to time copies that this driver offers: what the engine chose, the spin kernel, events alone."""
    word = {"gate": engine.gate.timed} if isinstance(engine.gate, Gate) else {}
    return {**word, "spin": SpinGate(engine.calls).timed, "events": partial(timed_by_events, engine.calls)}


def kernels(gpu: CudaGpu) -> Iterator[Line]:
    """Whether each kernel answers as computed here, for each number of words."""
    for words in WORDS:
        yield from _words(gpu, words, words_at(KEY, 0, words))
    links, steps = 1027, 1030
    gpu.launch("chain", links, gpu.source, LINK_STRIDE, links)
    gpu.launch("chase", 1, gpu.source, steps, gpu.note)
    gpu.wait()
    right = gpu.read(gpu.note, 1) == [gpu.source + steps % links * LINK_STRIDE]
    yield {"kernel": "chain, chase", "words": links, "right": right}


def _words(gpu: CudaGpu, words: int, pattern: list[int]) -> Iterator[Line]:
    """Fill, copy and compare; the word after the last must stay."""
    even = words // 2 * 2
    for address, value in ((gpu.source, 7), (gpu.target, 9)):
        gpu.launch("poison", words + 1, address, value, words + 1)
    gpu.launch("fill", words, gpu.source, KEY, words)
    gpu.launch("copy", even // 2, gpu.target, gpu.source, even // 2)
    gpu.wait()
    yield {"kernel": "fill", "words": words, "right": gpu.read(gpu.source, words + 1) == [*pattern, 7]}
    yield {"kernel": "copy", "words": even, "right": gpu.read(gpu.target, even + 1) == [*pattern[:even], 9]}
    yield {"kernel": "compare", "words": words, "right": _compared(gpu, words)[:3] == [0, MASK, 0]}
    if words:
        place, flipped = words - 1, pattern[-1] ^ 1 << 40
        gpu.write(gpu.source + 8 * place, [flipped])
        right = _compared(gpu, words) == [1, place, place, place, flipped]
        yield {"kernel": "compare", "words": words, "flipped": place, "right": right}


def _compared(gpu: CudaGpu, words: int) -> list[int]:
    gpu.write(gpu.note, [0, MASK, 0])
    gpu.launch("compare", words, gpu.source, KEY, words, gpu.note, 64)
    gpu.wait()
    return gpu.read(gpu.note, 5)


def ways_to_time(engine: DriverEngine) -> Iterator[Line]:
    """The same copies within one GPU in each way, and where the queue behind a gate ends."""
    gpu, offered = engine.gpus[0], ways(engine)

    def copies(size: int) -> Callable[[], Any]:
        return partial(engine.calls, "cuMemcpyDtoDAsync", gpu.target, gpu.source, size, gpu.line().stream)

    for mib, (way, timed) in product(COPIED_MIB, offered.items()):
        count = min(256, max(1, 1024 // mib))
        yield {"copy_mib": mib, "way": way, **_timed(timed, gpu, copies(mib * MIB), count, mib * MIB)}
    for (way, timed), count in product(offered.items(), QUEUED):
        yield {"queued": count, "way": way, **_timed(timed, gpu, copies(16), count, 16)}


def host_pieces(engine: DriverEngine) -> Iterator[Line]:
    """Host copies of 512 MiB in two pieces of pinned memory in turn, by the size of a piece."""
    gpu = engine.gpus[0]
    for mib in PIECES_MIB:
        size, count = mib * MIB, BUFFER // (mib * MIB)
        first = gpu.pinned(None, 2 * size)
        for to in ("device", "host"):
            turn = cycle((first, first + size))

            def queue(size: int = size, turn: Iterator[int] = turn, to: str = to) -> None:
                if to == "device":
                    engine.calls("cuMemcpyHtoDAsync", gpu.target, next(turn), size, gpu.line().stream)
                else:
                    engine.calls("cuMemcpyDtoHAsync", next(turn), gpu.source, size, gpu.line().stream)

            yield {"pinned_mib": mib, "to": to, **_timed(engine.gate.timed, gpu, queue, count, size)}


def event_steps(engine: DriverEngine) -> Iterator[Line]:
    """Times between events with small copies between them: the least difference is the resolution."""
    gpu, calls = engine.gpus[0], engine.calls
    line = gpu.line()
    gpu.use()
    events = [calls("cuEventCreate", 0) for _ in range(EVENTS)]
    for event in events:
        calls("cuMemcpyDtoDAsync", gpu.target, gpu.source, 16, line.stream)
        calls("cuEventRecord", event, line.stream)
    gpu.wait()
    times = sorted({calls.seconds(events[0], event) for event in events})
    steps = sorted({round((b - a) * 1e9, 1) for a, b in pairwise(times)})
    yield {"events": EVENTS, "smallest_steps_ns": steps[:8]}


def without_peer_access(engine: DriverEngine) -> Iterator[Line]:
    """Whether a copy between two GPUs that the driver has to stage waits for a gate that is shut."""
    one, other = engine.gpus[:2]
    engine.peers.only(())
    for mib, (way, timed) in product((1, 64), ways(engine).items()):
        ends = (other.target, other.context, one.source, one.context)
        queue = partial(engine.calls, "cuMemcpyPeerAsync", *ends, mib * MIB, one.line().stream)
        yield {"staged_mib": mib, "way": way, **_timed(timed, one, queue, 1, mib * MIB)}


def _timed(timed: Way, gpu: CudaGpu, queue: Callable[[], Any], count: int, bytes_: int) -> Line:
    try:
        rows = [timed([Lane(gpu, gpu.line(), queue)], [count])[0] for _ in range(SAMPLES)]
    except NotTimed as error:
        return {"copies": count, "why": str(error)}
    return {"copies": count, "gb_s": [round(bytes_ * count / seconds / 1e9, 3) for seconds in rows]}


def _print(part: str, do: Callable[[], Iterator[Line]] = lambda: iter(({},))) -> None:
    try:
        for values in do():
            print(json.dumps({"part": part, **values}), flush=True)
    except (CudaError, MissingCall, OSError, ValueError) as error:
        print(json.dumps({"part": part, "error": str(error)}), flush=True)


def main() -> None:
    from gpucheck.host.nvml.supervisor import query_child
    from gpucheck.model import NvmlReading

    reading = query_child(20.0, health=False)
    if not isinstance(reading, NvmlReading):
        raise SystemExit(f"no GPU to try: {reading.call} ended with {reading.name}")
    engine = DriverEngine()
    devices = tuple(Device(index=gpu.index, name=gpu.name, bus_id=gpu.pci_bus_id) for gpu in reading.gpus)
    opened = engine.open(Setup(engine="driver", devices=devices, buffer_bytes=BUFFER, parent_pid=os.getppid()))
    _print("opened", lambda: iter(({"buffer_bytes": opened.buffer_bytes, "versions": opened.versions},)))
    for gpu in engine.gpus:
        _print(f"kernels, GPU {gpu.about.index}", partial(kernels, gpu))
    _print("events", partial(event_steps, engine))
    _print("ways to time", partial(ways_to_time, engine))
    _print("host pieces", partial(host_pieces, engine))
    if len(engine.gpus) > 1:
        _print("without peer access", partial(without_peer_access, engine))
    _print("end")
    engine.close()


if __name__ == "__main__":
    main()
