"""Failures that are not the copy's: real CPU children whose engine breaks, and what becomes of pair and verdict."""

import os
import sys

import pytest
from msgspec.structs import replace

from gpucheck.measure.bandwidth import Options, _cpu_place
from gpucheck.measure.facts import Facts
from gpucheck.measure.judge import judge
from gpucheck.measure.judge_failures import judge_failures
from gpucheck.measure.judge_load import judge_load
from gpucheck.measure.plan import Wish, plan
from gpucheck.measure.report import measured_pairs
from gpucheck.measure.results import Results
from gpucheck.measure.runner import MOST_LOST, run
from gpucheck.measure.simulated import SimulatedEngine
from gpucheck.measure.supervisor import Supervised
from gpucheck.measure.values import Failure, Flow, Opened, Setup
from gpucheck.model import Verdict
from tests.measure.benches import EIGHT_NVSWITCH, TWO_PCIE, Here, by_check, gen4

pytestmark = pytest.mark.slow

# The real child with the real CPU engine, one method of which breaks.
CHILD = """
import os, sys
import gpucheck.measure.arrays as arrays
from gpucheck.measure import child
from gpucheck.measure.cpu import CpuEngine
from gpucheck.measure.engine import CopyRefused, NotTimed

class Broken(CpuEngine):
    pass

def breaks(*arguments, **more):
    raise {error}

{place} = breaks
child.engine_of = lambda name: Broken()
child.main(int(sys.argv[1]), sys.stdin.buffer)
"""


def measured(error, place="Broken.time", depth="quick"):
    """A run of two CPU processes in which this is raised there; the results, and how many children it took."""
    machine = _cpu_place(Options()).machine
    setup = Setup(engine="cpu", devices=machine.devices, buffer_bytes=1 << 20, parent_pid=os.getpid())
    results = Results(devices=machine.devices)
    wish = Wish(depth=depth, methods=("ce-write",), buffer_bytes=1 << 20)
    pids = set()
    with Supervised(setup, 20.0, (sys.executable, "-c", CHILD.format(error=error, place=place))) as child:
        opened = child.open()
        if isinstance(opened, Failure):
            results.failures.append(opened)
        else:
            results.opened = opened
            pids.add(child._child.process.pid)
            run(plan(machine, wish), child, results, machine=machine, wish=wish, low=lambda _: ())
            pids.add(child._child.process.pid if child._child else 0)
    return results, machine, pids


def judged(results, machine, **facts):
    return by_check(judge(results, machine, Facts(kind="cpu", **facts)))


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        ("AttributeError('no such thing')", "defect", "a defect of gpucheck"),
        ("KeyError('peer access 217')", "defect", "a defect of gpucheck"),
        ("OSError(24, 'Too many open files')", "defect", "a defect of gpucheck"),
        ("RuntimeError('The size of tensor a must match')", "defect", "a defect of gpucheck"),
        ("MemoryError('out of memory')", "no-memory", "out of memory"),
    ],
)
def test_an_exception_in_the_child_is_unknown_and_no_pairs_fault(error, kind, words):
    results, machine, _ = measured(error)
    findings = judged(results, machine)

    assert {failure.kind for failure in results.failures} == {kind}
    assert results.broken == set()
    assert {finding.verdict for finding in findings["p2p-copies"]} == {Verdict.UNKNOWN}
    assert {(finding.cause, finding.subject) for finding in findings["p2p-copies"]} == {(None, "host")}
    assert words in str(findings["p2p-copies"][0].seen)
    assert findings["p2p-integrity"][0].verdict is Verdict.PASS, "both pairs were compared before anything was timed"
    text = " ".join(f"{f.seen} {f.why} {f.fix}" for f in findings["p2p-copies"])
    assert not any(word in text for word in ("Xid", "reboot", "corrupt"))


def test_a_defect_is_placed_for_whoever_reports_it():
    results, _, _ = measured("AttributeError('no such thing')")

    assert results.failures[0].detail.startswith("AttributeError: no such thing (<string>:")
    assert len(results.failures) <= MOST_LOST + 1


@pytest.mark.parametrize("place", ["Broken.fill", "arrays.compare", "arrays.poison"])
def test_an_exception_between_the_copies_is_no_corrupt_data(place):
    """Also one inside a device's own process, where its buffers are filled and compared."""
    results, machine, _ = measured("MemoryError()", place)
    findings = judged(results, machine)

    assert (results.checks, results.broken) == ([], set())
    assert {finding.verdict for finding in findings["p2p-integrity"]} == {Verdict.UNKNOWN}
    assert {finding.verdict for finding in findings["p2p-copies"]} == {Verdict.UNKNOWN}


@pytest.mark.parametrize(
    "error", ["AttributeError('x')", "ImportError('libcudnn.so.9')", "KeyError(0)", "OSError(5, 'x')"]
)
def test_an_engine_that_does_not_open_for_whatever_reason_is_unknown(error):
    results, machine, _ = measured(error, "Broken.open")
    (finding,) = judge(results, machine, Facts(kind="cpu"))

    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, None)


def test_copies_that_cannot_be_timed_leave_the_pair_in_the_run():
    results, machine, pids = measured("NotTimed('1 copy was not queued before the first')", depth="default")
    findings = judged(results, machine)
    (finding,) = findings["p2p-copies"]

    assert results.broken == set()
    assert results.latency.keys() >= {Flow(src=0, dst=1), Flow(src=1, dst=0)}, "other steps of the pair go on"
    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, None)
    assert str(finding.seen).startswith("timings unknown for GPU 0 <-> 1 (one direction, both directions")
    assert findings["p2p-integrity"][0].verdict is Verdict.PASS
    assert len(pids) == 1, "no context is spoilt by it: the child goes on"
    assert [pair.measured for pair in measured_pairs(results, machine)] == [None, None]


def test_a_crash_of_native_code_is_a_failure_without_a_cause_and_a_kill_is_unknown():
    crash, machine, _ = measured("os.kill(os.getpid(), 11)")
    (finding, *_) = judged(crash, machine)["p2p-copies"]
    killed, machine, _ = measured("os.kill(os.getpid(), 9)")

    assert (finding.verdict, finding.cause) == (Verdict.FAIL, None)
    assert finding.seen == "the measuring process crashed in copy GPU 0 -> 1 (ended by SIGSEGV)"
    assert crash.broken == {frozenset((0, 1))}
    assert {f.verdict for f in judged(killed, machine)["p2p-copies"]} == {Verdict.UNKNOWN}
    assert killed.broken == set()


def refused(code, detail="", **facts):
    results = Results(devices=TWO_PCIE.machine.devices)
    results.failures = [
        Failure(kind="refused", purpose="one direction", flows=(Flow(src=0, dst=1),), code=code, detail=detail)
    ]
    (finding,) = judge_failures(results, Facts(**facts))
    return finding


@pytest.mark.parametrize(
    ("code", "detail", "cause"),
    [
        (217, "", "false-p2p-grant"),
        (719, "GPU 0000:21:7.0, 2170 bytes, 217 words: peer access", None),
        (220, "", "nvlink-errors"),
        (214, "", "ecc-uncorrected"),
    ],
)
def test_the_code_decides_what_an_error_means_and_never_its_text(code, detail, cause):
    assert refused(code, detail).cause == cause


def test_a_peer_error_of_a_pair_without_a_grant_is_no_false_grant():
    assert refused(217, refused={(0, 1): "GNS"}).cause is None


def test_what_the_program_did_wrong_is_no_pairs_fault():
    """A build without code for this GPU (209) fails in the first fill of the first pair, as it would in every other."""

    class NoCode(SimulatedEngine):
        def fill(self, device, key, region):
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device")

        def error_code(self, error):
            return 209

    here = Here(NoCode(), TWO_PCIE.setup())
    assert isinstance(here.opened, Opened)
    results = Results(devices=TWO_PCIE.machine.devices, opened=here.opened)
    wish = TWO_PCIE.wish()
    run(plan(TWO_PCIE.machine, wish), here, results, machine=TWO_PCIE.machine, wish=wish, low=lambda _: ())
    findings = by_check(judge(results, TWO_PCIE.machine, Facts()))["p2p-copies"]

    assert results.broken == set()
    assert {finding.verdict for finding in findings} == {Verdict.UNKNOWN}
    assert "cudaErrorNoKernelImageForDevice" in findings[0].evidence[0]


def test_the_parts_of_a_crowd_are_not_reported_as_the_crowd():
    """Eight GPUs, all to all: one pair fails; the single copies that find it say nothing of all at once."""

    class OnePairFailsAmongMany(Here):
        def ask(self, step):
            if step.purpose == "all to all" and len(step.flows) > 1:
                return Failure(kind="refused", purpose=step.purpose, flows=step.flows, code=719)
            return super().ask(step)

    here = OnePairFailsAmongMany(SimulatedEngine(), EIGHT_NVSWITCH.setup())
    results = Results(devices=EIGHT_NVSWITCH.machine.devices, opened=here.opened)
    wish = EIGHT_NVSWITCH.wish()
    steps = [step for step in plan(EIGHT_NVSWITCH.machine, wish) if step.purpose == "all to all"]
    run(steps, here, results, machine=EIGHT_NVSWITCH.machine, wish=wish, low=lambda _: ())

    assert "all to all" not in results.crowds


def test_more_than_eight_peers_are_a_step_not_run():
    results = Results(devices=TWO_PCIE.machine.devices)
    results.failures = [Failure(kind="no-peers-left", purpose="all to all", flows=(Flow(src=0, dst=1),), code=711)]
    (finding,) = judge_failures(results, Facts())

    assert (finding.verdict, finding.seen) == (
        Verdict.SKIP,
        "not run: all to all: CUDA error 711 (cudaErrorTooManyPeers)",
    )


def slow_link(**more):
    gpus = [gen4(0), replace(gen4(1), pcie=replace(gen4(1).pcie, generation=3, width=8))]
    reading = replace(TWO_PCIE.reading, gpus=tuple(gpus))
    devices = tuple(replace(d, bus_id=g.pci_bus_id) for d, g in zip(TWO_PCIE.machine.devices, gpus, strict=True))
    return list(judge_load(Results(devices=devices), Facts(during=(reading,), **more)))


def test_a_slow_link_under_load_fails_on_bare_metal_and_is_not_judged_in_a_virtual_machine():
    """A guest is shown the card's maximum and the host's real link, as an L4 of Gen4 in a Gen3 host."""
    (skipped, rest) = slow_link(virtual="kvm")

    assert [f.cause for f in slow_link()] == ["pcie-link-downgraded", "pcie-width-reduced"]
    assert (skipped.verdict, skipped.seen) == (
        Verdict.SKIP,
        "not applicable: PCIe generation and width in a virtual machine (kvm)",
    )
    assert (rest.verdict, rest.seen) == (Verdict.PASS, "2 GPUs not throttled"), "a pass claims what was judged"


def test_links_that_nvml_says_nothing_about_are_not_passed():
    gpu = gen4(0)
    silent = replace(
        gpu, pcie=replace(gpu.pcie, generation=None), health=replace(gpu.health, clocks_event_reasons=None)
    )
    reading = replace(TWO_PCIE.reading, gpus=(silent,))
    devices = (replace(TWO_PCIE.machine.devices[0], bus_id=gpu.pci_bus_id),)
    (finding,) = judge_load(Results(devices=devices), Facts(during=(reading,)))

    assert finding.verdict is Verdict.UNKNOWN
