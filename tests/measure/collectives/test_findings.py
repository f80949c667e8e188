"""Observations and findings from how a run of collectives ended. No rank is started."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.measure.collectives.rank import _kind, bus_factor, elements
from gpucheck.measure.collectives.run import CollectiveOptions, measured
from gpucheck.measure.engines import torch as torch_engine
from gpucheck.measure.engines.torch import ordinal
from gpucheck.model import EXIT_STATUS, Verdict
from gpucheck.model.collectives import CollectiveResult
from gpucheck.model.device import Device
from gpucheck.model.diagnosis.observations import Hang
from gpucheck.processes.ranks.nccl_log import Taken
from gpucheck.processes.ranks.nodes import Nodes
from gpucheck.processes.ranks.rank import RankError
from gpucheck.run.links import collectives
from tests.machines import h100, whole_host
from tests.measure.collectives.samples import FINISHED, NVLS, ended, result, stated

TWO_HOSTS = Nodes(count=2, rank=0, host="node01", port=29500)


def test_the_ring_and_nvls_are_told_apart_and_only_the_largest_size_is_bandwidth():
    """Through the switch an all_reduce may exceed the link rate."""
    small = CollectiveResult(operation="all_gather", size_bytes=8192, variant="as is", busbw_gb_s=0.1, checked=7)
    results = [result(busbw_gb_s=480.0, checked=7), result(busbw_gb_s=367.0, variant="ring", checked=7), small]
    rows = measured({"as is": NVLS, "ring": FINISHED}, results, 8).collectives

    assert [(row.op, row.ranks, row.busbw_gb_s, row.transport, row.wrong) for row in rows] == [
        ("all_reduce", 8, 480.0, "NVLS", 0),
        ("all_reduce", 8, 367.0, None, 0),
        ("all_gather", 8, None, None, 0),
    ]


def test_what_the_network_carried_too_is_no_number_of_links():
    (row,) = measured({"as is": FINISHED}, [result(busbw_gb_s=40.0)], 8, TWO_HOSTS).collectives

    assert (row.busbw_gb_s, row.wrong) == (None, None), "nothing was compared either"


@pytest.mark.parametrize(
    ("transports", "limiting"),
    [
        ({"P2P/CUMEM": 6, "SHM": 2}, "SHM"),
        ({"P2P/direct": 6}, "P2P/direct"),
        ({"SHM": 2, "NET/IB": 1}, "NET/IB"),
        ({}, None),
    ],
)
def test_the_transport_that_limits_is_observed(transports, limiting):
    run = ended(taken=Taken(transports=transports))
    (row,) = measured({"as is": run}, [result(busbw_gb_s=40.0)], 8).collectives

    assert row.transport == limiting


def test_wrong_sums_are_observed_on_gpus_and_fail_on_cpus():
    bad = [result(busbw_gb_s=400.0, checked=7, wrong=3)]
    (row,) = measured({"as is": FINISHED}, bad, 8).collectives
    (finding,) = stated(FINISHED, bad, gpus=False)["collectives-results"]

    assert row.wrong == 3
    assert stated(FINISHED, bad) == {}
    assert (finding.verdict, finding.cause) == (Verdict.FAIL, None)


def test_exact_results_are_counted():
    (finding,) = stated(FINISHED, [result(checked=7), result(checked=7)])["collectives-results"]

    assert finding.verdict is Verdict.PASS
    assert finding.seen == "14 collectives exact on 8 GPUs, every element of every rank"


def test_nothing_checked_is_unknown():
    assert stated(FINISHED)["collectives-results"][0].verdict is Verdict.UNKNOWN


def test_a_hang_says_where_every_rank_was():
    stuck = ended("deadline", {"at": "all_reduce of 8 bytes, round 2 of 7"}, {"at": "rendezvous"}, seconds=60.0)
    (finding,) = stated(stuck)["collectives"]

    assert finding.verdict is Verdict.UNKNOWN
    assert measured({"as is": stuck}, [], 2).hang == Hang(op="all_reduce", gpus=(0, 1))
    assert "rank 0: all_reduce of 8 bytes, round 2 of 7; rank 1: rendezvous" in str(finding.seen)


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


@pytest.mark.parametrize(
    ("error", "code", "cause"),
    [
        (AttributeError("no such thing"), "measure.rank-defect", None),
        (MemoryError(), "measure.rank-no-resources", "host-resources"),
        (OutOfMemoryError("CUDA out of memory"), "measure.rank-no-resources", "host-resources"),
        (OSError(28, "No space left on device"), "measure.rank-no-resources", "host-resources"),
    ],
)
def test_a_defect_of_ours_or_a_used_up_host_is_unknown(error, code, cause):
    raised = RankError(type=type(error).__name__, message=str(error), kind=_kind(error))
    (finding,) = stated(ended("broken", {}, {"error": raised}))["collectives"]

    assert (finding.verdict, finding.code, finding.cause) == (Verdict.UNKNOWN, code, cause)
    assert str(finding.seen).startswith("collectives unknown: rank 1 failed: ")


@pytest.mark.parametrize(("number", "verdict"), [(9, Verdict.UNKNOWN), (11, Verdict.FAIL)])
def test_a_signal_counts_before_the_error_of_a_rank_that_lost_its_peer(number, verdict):
    lost = RankError(type="DistBackendError", message="Connection closed by peer", kind="collective")
    (finding,) = stated(ended("broken", {"error": lost}, {"status": -number}))["collectives"]

    assert finding.verdict is verdict
    assert "rank 1 was terminated by " in str(finding.seen)


def test_a_missing_torch_is_a_skip():
    missing = RankError(type="ModuleNotFoundError", message="x", missing="torch")

    assert stated(ended("broken", {"error": missing}))["collectives"][0].verdict is Verdict.SKIP


def test_one_gpu_has_no_collective_and_nothing_was_checked():
    report = collectives(whole_host(h100(0)), CollectiveOptions())
    (finding,) = report.findings

    assert (finding.verdict, finding.seen) == (Verdict.SKIP, "not run: 1 GPU, so nothing could be checked")
    assert (EXIT_STATUS[report.verdict], report.results) == (3, ())


@pytest.mark.parametrize(
    ("name", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("all_gather", 2, 0.5),
        ("reduce_scatter", 8, 0.875),
        ("all_to_all", 4, 0.75),
        ("broadcast", 8, 1.0),
        ("send_recv", 8, 1.0),
    ],
)
def test_bus_bandwidth_is_that_of_nccl_tests(name, ranks, factor):
    assert bus_factor(name, ranks) == factor


def test_an_unknown_collective_is_named():
    with pytest.raises(LookupError, match="all_redcue"):
        bus_factor("all_redcue", 2)


@given(size=st.integers(1, 1 << 40), ranks=st.integers(2, 1024))
def test_buffers_divide_among_the_ranks(size, ranks):
    count = elements(size, ranks)

    assert count >= ranks
    assert count % ranks == 0
    assert count * 4 <= max(size, ranks * 4)


def test_devices_are_found_by_bus_id_and_never_by_number():
    shown = [
        SimpleNamespace(pci_domain_id=0, pci_bus_id=0x3B, pci_device_id=0, uuid="b"),
        SimpleNamespace(pci_domain_id=0, pci_bus_id=0x1B, pci_device_id=0, uuid="a"),
    ]
    cuda = SimpleNamespace(device_count=lambda: 2, get_device_properties=lambda ordinal: shown[ordinal])
    fake = SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="0.1"), __version__="2.6")

    assert ordinal(fake, Device(index=0, name="x", bus_id="0000:1b:00.0")) == 1
    with pytest.raises(LookupError, match="CUDA_VISIBLE_DEVICES"):
        ordinal(fake, Device(index=2, name="x", bus_id="0000:5b:00.0"))


def test_a_build_that_tells_no_bus_id_is_helped_by_the_runtime(monkeypatch):
    def by_bus_id(answer, bus_id):
        if bus_id != b"0000:1b:00.0":
            return 10  # cudaErrorInvalidDevice
        answer._obj.value = 1
        return 0

    cuda = SimpleNamespace(device_count=lambda: 2, get_device_properties=lambda number: SimpleNamespace(name="x"))
    fake = SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda=None), __version__="1.0")
    monkeypatch.setattr(torch_engine, "_runtime", lambda _: SimpleNamespace(cudaDeviceGetByPCIBusId=by_bus_id))

    assert ordinal(fake, Device(index=0, name="x", bus_id="0000:1b:00.0")) == 1
    with pytest.raises(LookupError, match=r"not among the 2 that torch 1\.0, a build for CPUs, finds"):
        ordinal(fake, Device(index=2, name="x", bus_id="0000:5b:00.0"))
