"""Simulated time: streams, events, gates, full queues."""

TWO = "p100-pcie-x2"
READY = """
a, b = contexts()
meet(a, b)
size = 64 * MIB
here, there = alloc(a, size), alloc(b, size)
ok("cuCtxSetCurrent", a)
stream, start, end = ok("cuStreamCreate", 1), ok("cuEventCreate", 0), ok("cuEventCreate", 0)
def copy(stream, size=size):
    ok("cuMemcpyPeerAsync", there, b, here, a, size, stream)
"""


def test_copies_in_a_row_take_their_sum(run):
    code = READY + (
        "gate = Gate()\n"
        "one = timed(gate, [(a, copy)])[0]\n"
        "ten = timed(gate, [(a, lambda s: [copy(s) for _ in range(10)])])[0]\n"
        "small = timed(gate, [(a, lambda s: [copy(s, 16) for _ in range(100)])])[0] * 10\n"
        "print(abs(ten / one - 10) < 0.001, 2.0 < small < 2.2)\n"
    )
    assert run(TWO, code) == "True True"


def test_the_clock_does_not_wait(run):
    """A thousand copies of 64 MiB would take five seconds."""
    code = READY + (
        "import time\n"
        "began = time.perf_counter()\n"
        "ms = timed(Gate(), [(a, lambda s: [copy(s) for _ in range(1000)])])[0]\n"
        "print(ms > 4000, time.perf_counter() - began < 1)\n"
    )
    assert run(TWO, code) == "True True"


def test_events(run):
    code = READY + (
        "print(code('cuEventElapsedTime', start, end), code('cuEventQuery', start))\n"
        "ok('cuEventRecord', start, stream); copy(stream); ok('cuEventRecord', end, stream)\n"
        "print(ok('cuEventSynchronize', end), round(ok('cuEventElapsedTime', start, end), 2))\n"
        "untimed = ok('cuEventCreate', 2); ok('cuEventRecord', untimed, stream)\n"
        "ok('cuCtxSetCurrent', b); foreign = ok('cuEventCreate', 0)\n"
        "print(code('cuEventElapsedTime', start, untimed), code('cuEventRecord', foreign, stream))\n"
        "ok('cuEventRecord', foreign, 0)\n"
        "print(code('cuEventElapsedTime', start, foreign), ok('cuEventDestroy', end), code('cuEventQuery', end))\n"
    )
    lines = run(TWO, code).splitlines()

    assert lines[0] == "400 0"
    assert lines[1].startswith("None ")
    assert lines[2:] == ["400 400", "400 None 400"]


def test_a_gate_holds_every_stream_until_the_host_opens_it(run):
    code = READY + (
        "gate = Gate()\n"
        "gate.hold(stream); copy(stream); ok('cuEventRecord', end, stream)\n"
        "waits = ok('cuStreamCreate', 1); ok('cuStreamWaitEvent', waits, end, 0)\n"
        "print(code('cuStreamQuery', stream), code('cuEventQuery', end), code('cuStreamQuery', waits))\n"
        "gate.open()\n"
        "print(code('cuStreamQuery', waits), code('cuEventQuery', end), code('cuStreamQuery', stream))\n"
        "wait = lambda address: code('cuStreamWaitValue32', stream, address, 1, 0)\n"
        "print(wait(4096), wait(gate.address + 2))\n"
    )
    assert run(TWO, code).split("\n") == ["600 600 600", "0 0 0", "1 1"]


def test_a_full_queue_blocks_the_call_until_the_gate_opens(run):
    """Another thread can open it: no call holds the interpreter."""
    code = READY + (
        "import threading, time\n"
        "gate = Gate(); gate.hold(stream)\n"
        "opened = []\n"
        "def late(): opened.append(queued); gate.open()\n"
        "threading.Timer(0.5, late).start()\n"
        "began = time.perf_counter()\n"
        "for queued in range(100): copy(stream)\n"
        "print(opened, time.perf_counter() - began > 0.4, code('cuStreamSynchronize', stream))\n"
    )
    assert run(TWO, code, GPUCHECK_CUDA_QUEUE="64") == "[63] True 0"


def test_the_legacy_stream_waits_for_the_others_and_they_for_it(run):
    code = """
a, _ = contexts()
device = alloc(a, 64)
gate, plain, free = Gate(), ok("cuStreamCreate", 0), ok("cuStreamCreate", 1)
gate.hold(plain)
def poison(place, value, stream):
    launch("poison", device + 8 * place, value, 1, stream=stream, wait=False)
poison(0, 1, plain)
poison(0, 2, 0)
after = ok("cuStreamCreate", 0)
poison(1, 3, after)
poison(2, 4, free)
print(code("cuStreamQuery", 0), code("cuStreamQuery", after), code("cuStreamQuery", free))
gate.open()
ok("cuCtxSynchronize")
print(read(device, 3))
"""
    assert run(TWO, code).split("\n") == ["600 600 0", "[2, 3, 4]"]


def test_two_lanes_of_one_link_have_half_of_it_each(run):
    """And all of it again when the other has ended."""
    code = READY + (
        "gate = Gate()\n"
        "alone = timed(gate, [(a, copy)])[0]\n"
        "both = timed(gate, [(a, copy), (a, copy)])\n"
        "uneven = timed(gate, [(a, copy), (a, lambda s: [copy(s) for _ in range(3)])])\n"
        "print(*(round(ms / alone, 2) for ms in (*both, *uneven)))\n"
    )
    assert run(TWO, code) == "2.0 2.0 2.0 4.0"


def test_a_wait_is_for_the_recording_of_its_time(run):
    """Whatever the event is used for afterwards, and when it is destroyed."""
    code = READY + (
        "gate, first, second = Gate(), ok('cuStreamCreate', 1), ok('cuStreamCreate', 1)\n"
        "gate.hold(stream); ok('cuEventRecord', end, stream); ok('cuStreamWaitEvent', first, end, 0)\n"
        "ok('cuEventRecord', end, second); ok('cuStreamWaitEvent', second, end, 0)\n"
        "print(code('cuStreamQuery', second), code('cuEventQuery', end), code('cuStreamQuery', first))\n"
        "ok('cuEventDestroy', end); gate.open()\n"
        "print(code('cuStreamQuery', first), code('cuStreamQuery', stream))\n"
    )
    assert run(TWO, code).split("\n") == ["0 0 600", "0 0"]


def test_events_are_half_a_microsecond_apart_or_a_multiple_of_it(run):
    """A copy of some bytes lasts 2.9 us on this machine: single ones read 2.5 or 3, many of them what they took."""
    code = """
context, = contexts()[:1]
here, there, events = alloc(context, MIB), alloc(context, MIB), [ok("cuEventCreate", 0) for _ in range(40)]
for event in events:
    ok("cuMemcpyDtoDAsync", there, here, 100_000, 0)
    ok("cuEventRecord", event, 0)
ok("cuCtxSynchronize")
steps = [ok("cuEventElapsedTime", a, b) * 2000 for a, b in zip(events, events[1:])]
print(max(abs(step - round(step)) for step in steps) < 1e-3, len(set(map(round, steps))) > 1)
"""
    assert run("p100-pcie-x2", code) == "True True"
