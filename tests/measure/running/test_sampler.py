"""Readings during copies come from one process, and none is waited for."""

import sys

import pytest

from gpucheck.host.nvml.gauge import LinkReading
from gpucheck.measure.running.sampler import Sampler
from tests.shared import END_S

LINE = r'{"bus_id": "0000:07:00.0", "generation": 3, "width": 16, "reasons": ["idle"]}'
READING = LinkReading(bus_id="0000:07:00.0", generation=3, width=16, reasons=("idle",))


def child(body):
    """A child in whose place this runs; send() writes a reading."""
    write = f"import os, sys, time\ndef send():\n    os.write(int(sys.argv[1]), {LINE!r}.encode() + b'\\n')\n"
    return (sys.executable, "-S", "-c", write + body)


@pytest.mark.parametrize(
    ("body", "readings"),
    [
        ("send()\nsend()", (READING, READING)),
        ("", ()),
        ("sys.exit('no NVML')", ()),
        ("send()\nos.kill(os.getpid(), 11)", (READING,)),
        ("send()\nos.write(int(sys.argv[1]), b'{')", (READING,)),
    ],
    ids=["two", "none", "failed", "crashed", "cut"],
)
def test_what_the_child_wrote_counts(body, readings):
    with Sampler(("0000:07:00.0",), simulated=True, command=child(body)) as sampler:
        pass

    assert sampler.readings == [*readings]


NO_THREAD = 'import sys\nsys.exit("RuntimeError: can\'t start new thread")'


@pytest.mark.parametrize(
    ("command", "rejected"),
    [
        (("/nowhere/python",), "No such file"),
        (child(NO_THREAD), "can't start new thread"),
        (child("sys.exit('no NVML')"), ""),
        (child("send()"), ""),
    ],
)
def test_what_the_operating_system_did_not_start_is_stated(command, rejected):
    with Sampler(("0000:07:00.0",), simulated=True, command=command) as sampler:
        pass

    assert rejected in sampler.rejected
    assert bool(rejected) == bool(sampler.rejected)


def test_a_reading_that_ends_after_the_copies_is_not_taken_nor_waited_for():
    with Sampler(("0000:07:00.0",), simulated=False, command=child("time.sleep(600)\nsend()")) as sampler:
        pass

    assert sampler.readings == []
    sampler._thread.join(END_S)
    assert not sampler._thread.is_alive(), "the child was ended"


def test_without_a_process_or_a_gpu_there_is_no_reading():
    for bus_ids, command in ((("0000:07:00.0",), ("/no/such/python",)), ((), child("send()"))):
        with Sampler(bus_ids, simulated=True, command=command) as sampler:
            pass

        assert sampler.readings == []
