"""Failures that are not the copy's: real CPU children whose engine breaks, and what becomes of pair and verdict."""

import os
import sys

import msgspec
import pytest

from gpucheck.measure.bandwidth import _cpu_place
from gpucheck.measure.planning.plan import MeasurementRequest, plan
from gpucheck.measure.reporting.report import measured_pairs
from gpucheck.measure.running.runner import MOST_LOST, Results, Supervised, run
from gpucheck.measure.values import Opened, Setup
from gpucheck.model import Verdict
from gpucheck.model.copies import HOST, DataCheck, Failure, Flow
from gpucheck.model.diagnosis.observations import Measured
from tests.measure.benches import TWO_PCIE, Here, by_check, gaps
from tests.measure.formulas import FormulaEngine
from tests.shared import sampled

pytestmark = pytest.mark.slow

# The real child with the real CPU engine, one method of which breaks.
CHILD = """
import os, sys
from gpucheck.measure.engines import cpu
from gpucheck.measure.running import child
from gpucheck.measure.engines.cpu import CpuEngine
from gpucheck.measure.values import NotTimed

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
    machine, _, _ = _cpu_place()
    setup = Setup(engine="cpu", devices=machine.devices, buffer_bytes=1 << 20, parent_pid=os.getpid())
    results = Results(devices=machine.devices)
    request = MeasurementRequest(depth=depth, methods=("ce-write",), buffer_bytes=1 << 20)
    pids = set()
    with Supervised(setup, 20.0, (sys.executable, "-c", CHILD.format(error=error, place=place))) as child:
        opened = child.open()
        if isinstance(opened, Failure):
            results.failures.append(opened)
        else:
            results.opened = opened
            pids.add(child.worker.pid)
            run(plan(machine, request), child.run_step, results, machine=machine, request=request)
            pids.add(child.worker.pid if child.worker else 0)
    return results, machine, pids


def stated(results):
    return by_check(gaps(results, gpus=False, loaded=False))


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        ("KeyError('peer access 217')", "defect", "a defect of gpucheck"),
        ("OSError(24, 'Too many open files')", "no-resources", "the host has no space"),
        ("MemoryError('out of memory')", "no-memory", "out of memory"),
    ],
)
def test_an_exception_in_the_child_is_unknown_and_no_pairs_fault(error, kind, words):
    results, _, _ = measured(error)
    findings = stated(results)

    assert {failure.kind for failure in results.failures} == {kind}
    assert results.broken == set()
    assert {finding.verdict for finding in findings["p2p-copies"]} == {Verdict.UNKNOWN}
    cause = None if kind == "defect" else "host-resources"
    assert {(finding.cause, finding.subject) for finding in findings["p2p-copies"]} == {(cause, "host")}
    assert words in str(findings["p2p-copies"][0].seen)
    assert findings["p2p-integrity"][0].verdict is Verdict.PASS, "both pairs were compared before anything was timed"
    assert {f.code for f in findings["p2p-copies"]} <= {f"measure.copies-{kind}", "measure.copies-ended"}


def test_a_defect_is_placed_for_whoever_reports_it():
    results, _, _ = measured("AttributeError('no such thing')")

    assert results.failures[0].detail.startswith("AttributeError: no such thing (<string>:")
    assert len(results.failures) <= MOST_LOST + 1


@pytest.mark.parametrize("place", sampled(["Broken.fill", "cpu._Device.compare", "cpu.signed"], (1,)))
def test_an_exception_between_the_copies_is_no_corrupt_data(place):
    """Also one inside a device's own process, where its buffers are filled and compared."""
    results, _, _ = measured("MemoryError()", place)
    findings = stated(results)

    assert (results.checks, results.broken) == ([], set())
    assert {finding.verdict for finding in findings["p2p-integrity"]} == {Verdict.UNKNOWN}
    assert {finding.verdict for finding in findings["p2p-copies"]} == {Verdict.UNKNOWN}


@pytest.mark.parametrize("error", ["ImportError('libcudnn.so.9')", "OSError(5, 'x')"])
def test_an_engine_that_does_not_open_for_whatever_reason_is_unknown(error):
    results, _, _ = measured(error, "Broken.open")
    (finding,) = gaps(results, gpus=False, loaded=False)

    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, None)


def test_copies_that_cannot_be_timed_leave_the_pair_in_the_run():
    results, machine, pids = measured("NotTimed('1 copy was not queued before the first')", depth="default")
    findings = stated(results)
    (finding,) = findings["p2p-copies"]

    assert results.broken == set()
    assert results.latency.keys() >= {Flow(src=0, dst=1), Flow(src=1, dst=0)}, "other steps of the pair go on"
    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, None)
    assert str(finding.seen).startswith("timings unknown for GPU 0 <-> 1 (one direction, both directions")
    assert findings["p2p-integrity"][0].verdict is Verdict.PASS
    assert len(pids) == 1, "no context is spoilt by it: the child goes on"
    assert [pair.measured for pair in measured_pairs(results, machine)] == [None, None]


def test_a_crash_of_native_code_breaks_the_pair_and_a_kill_does_not():
    """Between CPU processes neither says anything about a link."""
    crash, _, _ = measured("os.kill(os.getpid(), 11)")
    (finding, *_) = stated(crash)["p2p-copies"]
    killed, _, _ = measured("os.kill(os.getpid(), 9)")

    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, None)
    assert str(finding.seen).endswith("the measuring process crashed")
    assert finding.evidence[0].startswith("copy GPU 0 -> 1, ")
    assert finding.evidence[0].endswith("ended by SIGSEGV")
    assert crash.broken == {frozenset((0, 1))}
    assert {f.verdict for f in stated(killed)["p2p-copies"]} == {Verdict.UNKNOWN}
    assert killed.broken == set()


def failed(*failures: Failure) -> Results:
    results = Results(devices=TWO_PCIE.machine.devices)
    results.failures = list(failures)
    return results


@pytest.mark.parametrize(
    ("failure", "kind", "pairs", "detail"),
    [
        (
            Failure(kind="refused", purpose="one direction", flows=(Flow(src=0, dst=1),), code=217, detail="at 0"),
            "error",
            ((0, 1),),
            "CUDA error 217 (cudaErrorPeerAccessUnsupported): at 0",
        ),
        (
            Failure(kind="stuck", purpose="integrity", flows=(Flow(src=1, dst=0),), detail="no progress for 3 s"),
            "stuck",
            ((1, 0),),
            "no progress for 3 s",
        ),
        (
            Failure(kind="crashed", purpose="host and device", flows=(Flow(src=HOST, dst=1),), detail="SIGSEGV"),
            "crashed",
            (),
            "GPU 1: SIGSEGV",
        ),
        (Failure(kind="stuck", purpose="open", detail="no answer"), "stuck", (), "no answer"),
    ],
    ids=lambda value: value.purpose if isinstance(value, Failure) else "",
)
def test_copies_that_the_driver_or_a_link_failed_are_observed_and_no_gap(failure, kind, pairs, detail):
    (seen,) = TWO_PCIE.observed(failed(failure)).measured.failures

    assert (seen.kind, seen.step, seen.pairs, seen.detail) == (kind, failure.purpose, pairs, detail)
    assert TWO_PCIE.gaps(failed(failure)) == ()


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        *((kind, None) for kind in ("killed", "defect", "not-timed", "not-started")),
        *((kind, "host-resources") for kind in ("no-memory", "no-process", "no-resources")),
    ],
)
def test_what_is_not_the_copys_fault_is_a_gap_and_not_observed(kind, cause):
    failure = Failure(kind=kind, purpose="one direction", flows=(Flow(src=0, dst=1),), detail="for a reason")
    (gap,) = TWO_PCIE.gaps(failed(failure))

    assert (gap.check, gap.verdict, gap.cause) == ("p2p-copies", Verdict.UNKNOWN, cause)
    assert TWO_PCIE.observed(failed(failure)).measured == Measured()


def test_what_the_program_did_wrong_is_no_pairs_fault():
    """A build without code for this GPU (209) fails in the first fill of the first pair, as it would in every other."""

    class NoCode(FormulaEngine):
        def fill(self, device, key, region):
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device")

        def error_code(self, error):
            return 209

    results = TWO_PCIE.run(Here(NoCode(TWO_PCIE.rates()), TWO_PCIE.setup()).run_step)
    findings = by_check(TWO_PCIE.gaps(results))["p2p-copies"]

    assert results.broken == set()
    assert {finding.verdict for finding in findings} == {Verdict.UNKNOWN}
    assert "cudaErrorNoKernelImageForDevice" in findings[0].evidence[0]


def test_more_than_eight_peers_are_a_step_not_run():
    failure = Failure(kind="no-peers-left", purpose="one direction", flows=(Flow(src=0, dst=1),), code=711)
    (finding,) = TWO_PCIE.gaps(failed(failure))

    assert (finding.verdict, finding.seen) == (
        Verdict.SKIP,
        "not run: one direction: CUDA error 711 (cudaErrorTooManyPeers)",
    )


def test_data_that_a_gpu_changes_inside_itself_is_no_links_fault():
    check = DataCheck(flow=Flow(src=0, dst=0), bytes_verified=800, host_bytes_verified=8, rounds=1, bad_rounds=1)
    bad = msgspec.structs.replace(check, mismatches=3, damage="bit-flip", evidence=("word 7: got 1, sent 0",))
    results = Results(devices=TWO_PCIE.machine.devices, opened=Opened(buffer_bytes=1, methods=(), clock=""))
    results.checks = [(False, bad)]
    (finding,) = TWO_PCIE.gaps(results)

    assert (finding.check, finding.verdict, finding.cause) == ("p2p-integrity", Verdict.FAIL, "data-corruption")
    assert finding.subject == "gpu:0000:03:00.0"
    assert TWO_PCIE.observed(results).measured == Measured()
