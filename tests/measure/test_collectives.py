"""Definitions, NCCL's log, judgement, and real ranks over gloo: on one host, and on two by torchrun."""

import json
import os
import socket
import subprocess
import sys
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.measure.collectives.definitions import ALL, bus_factor, elements
from gpucheck.measure.collectives.gaps import gaps
from gpucheck.measure.collectives.launch import Ended, Nodes, launch, ranks_environment
from gpucheck.measure.collectives.nccl_log import Taken, error_text, parse
from gpucheck.measure.collectives.observed import measured
from gpucheck.measure.collectives.run import Options, measure
from gpucheck.measure.collectives.values import Folder, RankError, RankSpec
from gpucheck.model import EXIT_STATUS, Verdict
from gpucheck.model.collectives import CollectiveResult
from gpucheck.model.observations import Hang
from tests.machines import h100, whole_host
from tests.measure.benches import by_check
from tests.train.conftest import end_processes_with, processes_with, wait_until

pytestmark = pytest.mark.slow

GPUCHECK = [sys.executable, "-m", "gpucheck", "collectives"]
LOG = """\
node07:101:120 [0] NCCL INFO NCCL version 2.27.3+cuda12.9
node07:101:120 [0] NCCL INFO NVLS multicast support is available on dev 0
node07:101:120 [0] NCCL INFO Channel 00/24 : 0 1 2 3
node07:101:120 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node07:101:120 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node07:102:121 [1] NCCL INFO Channel 00 : 1[1b000] -> 2[2b000] via P2P/direct pointer
node07:102:121 [1] NCCL INFO Channel 00 : 2[2] -> 3[3] via SHM/direct/direct
node07:102:121 [1] NCCL INFO Channel 00/0 : 3[3] -> 0[0] [send] via NET/Socket/0
node07:101:120 [0] NCCL INFO AllReduce: 1073741824 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..23}
node07:101:120 [0] NCCL INFO AllReduce: 8192 Bytes -> Algo 1 proto 0 time 12.3
node07:102:121 [1] graph/paths.cc:700 NCCL WARN P2P is disabled between NVLINK connected GPUs 0 and 1
"""


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


def test_the_log_tells_transports_algorithms_and_warnings():
    taken = parse(LOG)

    assert taken.version == "2.27.3"
    assert taken.transports == {"P2P/CUMEM": 2, "P2P/direct": 1, "SHM": 1, "NET/Socket": 1}
    assert taken.algorithms == {"AllReduce": ("NVLS", "RING")}
    assert taken.pairs["2-3"] == "SHM"
    assert taken.warnings == ("P2P is disabled between NVLINK connected GPUs 0 and 1",)


def test_a_multicast_line_alone_is_no_nvls():
    assert parse("NCCL INFO NVLS multicast support is available on dev 0").algorithms == {}


@given(st.text(max_size=300))
def test_no_log_breaks_the_parser(text):
    parse(text)
    parse("NCCL INFO Channel 00/0 : " + text + " via P2P/" + text)


def result(operation="all_reduce", variant="as is", **values):
    return CollectiveResult(operation=operation, size_bytes=1 << 30, variant=variant, **values)


FINISHED = Ended(reason="finished", seconds=1.0, ranks=8)
NVLS = Ended(reason="finished", seconds=1.0, ranks=8, taken=Taken(algorithms={"AllReduce": ("NVLS",)}))


def stated(ended, results=(), *, gpus=True):
    return by_check(gaps({"as is": ended}, results, gpus=gpus))


def test_the_ring_and_nvls_are_told_apart_and_only_the_largest_size_is_bandwidth():
    """Through the switch an all_reduce may exceed the link rate."""
    small = CollectiveResult(operation="all_gather", size_bytes=8192, variant="as is", busbw_gb_s=0.1, checked=7)
    results = [result(busbw_gb_s=480.0, checked=7), result(busbw_gb_s=367.0, variant="ring", checked=7), small]
    rows = measured({"as is": NVLS, "ring": FINISHED}, results, 8, several_hosts=False).collectives

    assert [(row.op, row.ranks, row.busbw_gb_s, row.transport, row.wrong) for row in rows] == [
        ("all_reduce", 8, 480.0, "NVLS", 0),
        ("all_reduce", 8, 367.0, None, 0),
        ("all_gather", 8, None, None, 0),
    ]


def test_what_the_network_carried_too_is_no_number_of_links():
    (row,) = measured({"as is": FINISHED}, [result(busbw_gb_s=40.0)], 8, several_hosts=True).collectives

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
    ended = Ended(reason="finished", seconds=1.0, ranks=8, taken=Taken(transports=transports))
    (row,) = measured({"as is": ended}, [result(busbw_gb_s=40.0)], 8, several_hosts=False).collectives

    assert row.transport == limiting


def test_wrong_sums_are_observed_on_gpus_and_fail_on_cpus():
    bad = [result(busbw_gb_s=400.0, checked=7, wrong=3)]
    (row,) = measured({"as is": FINISHED}, bad, 8, several_hosts=False).collectives
    (finding,) = stated(FINISHED, bad, gpus=False)["collectives-results"]

    assert row.wrong == 3
    assert stated(FINISHED, bad) == {}
    assert (finding.verdict, finding.cause) == (Verdict.FAIL, None)


def test_exact_results_are_counted():
    (finding,) = stated(FINISHED, [result(checked=7), result(checked=7)])["collectives-results"]

    assert (finding.verdict, finding.seen) == (Verdict.PASS, "14 collectives exact, every element of every rank")


def test_nothing_checked_is_unknown():
    assert stated(FINISHED)["collectives-results"][0].verdict is Verdict.UNKNOWN


def test_a_hang_says_where_every_rank_was():
    stuck = Ended(
        reason="deadline", seconds=60.0, ranks=2, where={0: "all_reduce of 8 bytes, round 2 of 7", 1: "rendezvous"}
    )
    (finding,) = stated(stuck)["collectives"]

    assert finding.verdict is Verdict.UNKNOWN
    assert measured({"as is": stuck}, [], 2, several_hosts=False).hang == Hang(op="all_reduce", gpus=(0, 1))
    assert "rank 0: all_reduce of 8 bytes, round 2 of 7; rank 1: rendezvous" in str(finding.seen)


def test_a_missing_torch_is_a_skip():
    ended = Ended(
        reason="failed",
        seconds=1.0,
        ranks=2,
        errors={0: RankError(type="ModuleNotFoundError", message="x", missing="torch")},
    )

    assert stated(ended)["collectives"][0].verdict is Verdict.SKIP


def test_leftovers_are_kept_from_the_ranks_and_told(tmp_path):
    caller = {"PATH": "/bin", "NCCL_P2P_DISABLE": "1", "NCCL_SOCKET_IFNAME": "ens1", "RANK": "3"}
    one, removed = ranks_environment(caller, Folder(tmp_path), None)
    several, _ = ranks_environment(caller, Folder(tmp_path), Nodes(count=2, rank=1, address="192.0.2.1", port=29500))

    assert removed == ("NCCL_P2P_DISABLE=1", "NCCL_SOCKET_IFNAME=ens1", "RANK=3")
    assert (one["NCCL_SOCKET_IFNAME"], several["NCCL_SOCKET_IFNAME"]) == ("lo", "ens1")
    assert "RANK" not in one


def test_two_cpu_ranks_run_every_collective_exactly():
    done = subprocess.run([*GPUCHECK, "--sizes", "4K", "--format", "json"], capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["schema"], report["backend"], report["ranks"]) == ("gpucheck.collectives/1", "gloo", 2)
    assert [(r["operation"], r["wrong"], r["checked"]) for r in report["results"]] == [(name, 0, 7) for name in ALL]
    assert all(r["busbw_gb_s"] > 0 for r in report["results"])


# As torch 2.x prints it with NCCL 2.28.9 (komikndr/raylight issue 50).
NCCL_ERROR = """\
NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3699, unhandled cuda error (run with \
NCCL_DEBUG=INFO for details), NCCL version 2.28.9
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
Cuda failure 217 'peer access is not supported between these two devices'
"""


def test_of_an_nccl_error_the_line_with_the_reason_is_kept():
    text = error_text(NCCL_ERROR)

    assert text.startswith("Cuda failure 217 'peer access is not supported between these two devices' (NCCL error in: ")
    assert "NCCL version 2.28.9" in text
    assert error_text("Connection closed by peer\nmore") == "Connection closed by peer"
    assert error_text("") == ""


BROKEN = """
import os
if os.environ.get("RANK") == "1":
    import torch.distributed
    def breaks(*arguments, **more):
        raise {error}
    torch.distributed.{call} = breaks
"""


def broken_rank(tmp_path, call, error):
    """Two real gloo ranks, of which one raises this in that call."""
    (tmp_path / "sitecustomize.py").write_text(BROKEN.format(call=call, error=error))
    spec = RankSpec(backend="gloo", operations=("all_reduce", "all_to_all"), sizes=(4096,), samples=2)
    return launch(spec, 2, 60.0, PYTHONPATH=str(tmp_path))


@pytest.mark.parametrize("call", ["all_reduce", "all_to_all_single"])
def test_an_error_of_one_rank_fails_and_does_not_hang_the_others(tmp_path, call):
    """Whatever its text: "not supported" is how the most frequent errors of a first run begin."""
    ended = broken_rank(tmp_path, call, f"torch.distributed.DistBackendError({NCCL_ERROR!r})")
    finding = stated(ended)["collectives"][0]

    assert ended.reason == "failed"
    assert ended.seconds < 30, "nowhere near the deadline"
    assert finding.verdict is Verdict.FAIL
    assert str(finding.seen).startswith("rank 1 failed: Cuda failure 217 'peer access is not supported")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("AttributeError('no such thing')", "a defect of gpucheck"),
        ("MemoryError()", "no memory, disk space"),
        ("torch.OutOfMemoryError('CUDA out of memory')", "no memory, disk space"),
        ("OSError(28, 'No space left on device')", "no memory, disk space"),
    ],
)
def test_a_defect_of_ours_in_a_rank_is_unknown(tmp_path, error, words):
    finding = stated(broken_rank(tmp_path, "all_reduce", error))["collectives"][0]

    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, None)
    assert str(finding.seen).startswith("collectives unknown: rank 1 failed: ")
    assert words in finding.why


@pytest.mark.parametrize(("number", "verdict"), [(9, Verdict.UNKNOWN), (11, Verdict.FAIL)])
def test_a_rank_that_a_signal_ends_is_named_before_those_that_lost_it(tmp_path, number, verdict):
    ended = broken_rank(tmp_path, "all_reduce", f"SystemExit(os.kill(os.getpid(), {number}))")
    finding = stated(ended)["collectives"][0]

    assert finding.verdict is verdict
    assert f"rank 1 was ended by {'SIGKILL' if number == 9 else 'SIGSEGV'}" in str(finding.seen)


def test_a_rank_that_does_not_reach_its_gpu_is_unknown():
    """A build of torch without CUDA, as here, or a GPU that CUDA_VISIBLE_DEVICES hides."""
    spec = RankSpec(backend="nccl", operations=("all_reduce",), sizes=(4096,), bus_ids=("0000:1b:00.0",) * 2)
    finding = stated(launch(spec, 2, 60.0))["collectives"][0]

    assert finding.verdict is Verdict.UNKNOWN
    assert "(0000:1b:00.0) is not among the 0 that torch sees" in str(finding.seen)


def test_one_gpu_has_no_collective_and_nothing_was_checked():
    report = measure(whole_host(h100(0)), Options())
    (finding,) = report.findings

    assert (finding.verdict, finding.seen) == (Verdict.SKIP, "not run: 1 GPU, so nothing could be checked")
    assert (EXIT_STATUS[report.verdict], report.results) == (3, ())


def test_two_hosts_meet_through_torchrun():
    """Two launches with their own node rank, over loopback addresses: what two hosts do over the network."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*GPUCHECK, "--sizes", "4K", "--only", "all_reduce", "--ranks", "1", "--format", "json"]
    hosts = [
        subprocess.Popen(
            [*command, "--nodes", "2", "--node-rank", str(number), "--master", f"127.0.0.1:{port}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in (0, 1)
    ]
    answers = [host.communicate(timeout=300) for host in hosts]

    assert [host.returncode for host in hosts] == [0, 0], answers
    reports = [json.loads(out) for out, _ in answers]
    assert [(r["ranks"], r["nodes"], r["verdict"]) for r in reports] == [(2, 2, "pass")] * 2
    assert reports[0]["results"] == reports[1]["results"]


@pytest.mark.parametrize(
    ("master", "words"),
    [
        ("no-such-host.invalid:29500", "no-such-host.invalid has no address here"),
        ("10.0.0.1", "wanted HOST:PORT"),
        ("192.0.2.1:29500", "not one of its own"),
    ],
)
def test_a_master_that_cannot_be_is_wrong_usage_before_anything_starts(master, words):
    place = ["--nodes", "2", "--node-rank", "0", "--master", master]
    done = subprocess.run([*GPUCHECK, *place], capture_output=True, text=True, timeout=60)

    assert done.returncode == 64
    assert f"--master {master}: " in done.stderr
    assert words in done.stderr


def test_ranks_that_do_not_end_in_time_show_the_calls_they_are_in():
    spec = RankSpec(backend="gloo", operations=("all_reduce",), sizes=(1 << 28,), iterations=100_000)
    ended = launch(spec, 2, 6.0)

    assert ended.reason == "deadline"
    assert ended.stacks.keys() == {0, 1}
    assert any("collectives/rank.py" in frame for frame in ended.stacks[0])
    (stuck,) = stated(ended, gpus=False)["collectives"]
    assert any(line.startswith("rank 0 is in ") for line in stuck.evidence)


@pytest.mark.parametrize("hosts", [1, 2])
def test_ranks_end_with_a_parent_that_is_killed(tmp_path, hosts):
    """Also those of torchrun, and torchrun itself."""
    marker = f"GPUCHECK_TEST_RUN={uuid.uuid4()}"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    several = ["--nodes", "2", "--node-rank", "0", "--master", f"127.0.0.1:{port}"] if hosts == 2 else []
    name, _, value = marker.partition("=")
    parent = subprocess.Popen([*GPUCHECK, *several], env=os.environ | {name: value, "TMPDIR": str(tmp_path)})
    try:
        wait_until(lambda: len(processes_with(marker)) > 1)
        parent.kill()
        parent.wait(10)

        wait_until(lambda: processes_with(marker) == [])
    finally:
        end_processes_with(marker)


def test_ranks_that_never_meet_end_at_the_deadline():
    """Only one of two hosts comes: nobody is waited for longer than was said."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    spec = RankSpec(backend="gloo", operations=("all_reduce",), sizes=(4096,), timeout_s=60.0)
    ended = launch(spec, 1, 2.0, Nodes(count=2, rank=0, address="127.0.0.1", port=port, interface="lo"))

    assert ended.reason == "deadline"
    assert ended.where == {0: "start"}
