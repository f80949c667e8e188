"""Ranks without a framework: how a run ends, what is known of each rank, and that nothing is left."""

import math
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.processes.contention import Waiting
from gpucheck.processes.ranks.nccl_log import SHOW, error_text, parse, read
from gpucheck.processes.ranks.nodes import Nodes, nodes_from
from gpucheck.processes.ranks.supervisor import Ending, rank_specs, supervise
from tests.measure.collectives.samples import NCCL_ERROR
from tests.processes.rank_program import Report, ranks
from tests.train.conftest import ROOT, nothing_left


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run two ranks; afterwards no process and no file of them may be left."""
    with nothing_left(tmp_path, monkeypatch) as marked:

        def go(failure: str = "", timeout_s: float = 20.0, **more) -> Ending[Report]:
            environment = {**os.environ, "PYTHONPATH": str(ROOT), **marked.environment}
            return supervise(ranks(failure, timeout_s, **more), environment)

        yield go


def test_ranks_that_finish_leave_their_reports(run):
    ending = run()

    assert ending.reason == "finished"
    assert [end.report for end in ending.ranks] == [Report(0, 2), Report(1, 2)]
    assert ending.ranks[0].progress == b'"second step"'


@pytest.mark.parametrize(("waited", "least"), [(1.5, 2.5), (1e6, 4.0)])
def test_time_without_a_processor_is_no_part_of_the_limit_up_to_a_bound(run, monkeypatch, waited, least):
    monkeypatch.setattr(Waiting, "look", lambda self, now: waited)

    ending = run("hang", timeout_s=1.0)

    assert ending.reason == "deadline"
    assert ending.seconds >= least


@pytest.mark.parametrize(("share", "least"), [(0.5, 1.6), (10.0, 3.2)])
def test_ranks_that_wait_for_a_processor_stand_still_for_longer(run, monkeypatch, share, least):
    """On a busy machine healthy ranks were called stuck. share: of the time."""
    monkeypatch.setattr(Waiting, "look", lambda self, now: share * now)
    ending = run("hang", timeout_s=60.0, stall_s=lambda _: 0.8)

    assert ending.reason == "stalled"
    assert ending.seconds >= least


def test_report_of_another_rank_is_no_success(run):
    """Other ways to fail are in tests/train/test_failing_ranks.py."""
    ending = run("other")
    end = ending.ranks[1]

    assert (ending.reason, end.status, end.report) == ("broken", 0, None)
    assert "is that of rank 0" in end.unreadable


def test_rank_that_hangs_ends_at_the_deadline_with_its_stack(run):
    """It ignores SIGTERM."""
    ending = run("hang", timeout_s=2.0)
    end = ending.ranks[1]

    assert (ending.reason, end.status, ending.unkillable) == ("deadline", None, ())
    assert any("rank_program.py" in frame and "in fail" in frame for frame in end.stack)
    assert end.output == ("about to hang",)
    assert ending.seconds < 300, "half of the time that it hangs"


def test_program_decides_when_ranks_are_stalled(run):
    ending = run("hang", stall_s=lambda progress: 0.0 if progress == [b'"second step"'] * 2 else math.inf)

    assert ending.reason == "stalled"


def test_the_limit_counts_from_where_the_program_says(run):
    ending = run("hang", timeout_s=0.5, start_s=60.0, has_begun=lambda progress: progress == [b'"second step"'] * 2)

    assert ending.reason == "deadline"
    assert 0.5 < ending.seconds < 60


def test_ranks_are_numbered_over_all_hosts():
    second = Nodes(count=2, rank=1, host="node01", port=29500)
    specs = rank_specs(ranks(processes=4, nodes=second), "/tmp/x")

    assert [(spec.rank, spec.local_rank, spec.processes) for spec in specs] == [(2, 0, 4), (3, 1, 4)]
    assert {spec.parent_pid for spec in specs} == {os.getpid()}


def variables(count: object, rank: object, host: object, port: object) -> dict[str, str]:
    names = ("GROUP_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
    return dict(zip(names, map(str, (count, rank, host, port)), strict=True))


def nodes(count: object, rank: object, host: str, port: object) -> Nodes:
    found = nodes_from(variables(count, rank, host, port))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("values", "words"),
    [
        *(((2, 0, "node", port), "MASTER_PORT") for port in ("", "x", "0", "65536", "\u0663", "-1")),
        ((2, 0, "", 29500), "MASTER_ADDR and MASTER_PORT: set"),
        ((2, "", "node", 29500), "GROUP_RANK '': expected a number"),
        (("two", 0, "node", 29500), "GROUP_WORLD_SIZE 'two': expected a number"),
        ((2, 2, "127.0.0.1", 29500), "the hosts are 0 to 1"),
        ((2, 1, "no-such-host.invalid", 29500), "has no address here"),
        ((2, 0, "192.0.2.1", 29500), "not one of its own"),
    ],
)
def test_invalid_rendezvous_is_rejected(values, words):
    with pytest.raises(ValueError, match=words):
        nodes(*values)


def test_port_in_use_is_rejected_on_the_listening_host():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(ValueError, match="the port is in use: choose another"):
            nodes(2, 0, "127.0.0.1", port)
        assert nodes(2, 1, "127.0.0.1", port).rank == 1, "the other hosts are to connect to it"


def test_interface_leads_to_the_rendezvous():
    """IPv6 leaves the interface to the library."""
    v6 = nodes(2, 1, "::1", 29500)

    assert nodes(2, 1, "127.0.0.1", 29500).interface == "lo"
    assert (v6.host, v6.port, v6.interface) == ("::1", 29500, None)


def test_torchrun_environment_gives_the_nodes():
    environment = {
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29400",
    }
    found = nodes_from(environment)

    assert found is not None
    assert (found.count, found.rank, found.port, found.hosted) == (2, 1, 29400, True)
    assert nodes_from({}) is None
    with pytest.raises(ValueError, match="--nproc-per-node 1"):
        nodes_from(environment | {"LOCAL_WORLD_SIZE": "2"})


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


def test_the_log_tells_transports_algorithms_and_warnings():
    taken = parse(LOG)

    assert taken.transports == {"P2P/CUMEM": 2, "P2P/direct": 1, "SHM": 1, "NET/Socket": 1}
    assert taken.algorithms == {"AllReduce": ("NVLS", "RING")}
    assert taken.warnings == ("P2P is disabled between NVLINK connected GPUs 0 and 1",)


def test_the_lines_of_nccl_2_21_name_no_collective():
    """As torch 2.6 carries it: NVIDIA/nccl v2.21.5-1, src/enqueue.cc line 1534."""
    taken = parse("node07:101:120 [0] NCCL INFO 1073741824 Bytes -> Algo 4 proto 2 time 4312.502930\n")

    assert taken.algorithms == {"": ("NVLS",)}
    assert taken.chosen("AllReduce") == ("NVLS",)
    assert parse(LOG).chosen("AllGather") == ()


def test_a_multicast_line_alone_is_no_nvls():
    assert parse("NCCL INFO NVLS multicast support is available on dev 0").algorithms == {}


@given(st.text(max_size=300))
def test_no_log_breaks_the_parser(text):
    parse(text)
    parse("NCCL INFO Channel 00/0 : " + text + " via P2P/" + text)


def test_of_an_nccl_error_the_line_with_the_reason_is_kept():
    text = error_text(NCCL_ERROR)

    assert text.startswith("Cuda failure 217 'peer access is not supported between these two devices' (NCCL error in: ")
    assert "NCCL version 2.28.9" in text
    assert error_text("Connection closed by peer\nmore") == "Connection closed by peer"
    assert error_text("") == ""


def test_a_recording_keeps_the_text(tmp_path, monkeypatch, capsys):
    (tmp_path / "nccl.host.1").write_text("NCCL version 2.27.3+cuda12.9\n")
    read(tmp_path)
    assert capsys.readouterr().err == ""

    monkeypatch.setenv(SHOW, "1")
    read(tmp_path)
    assert "NCCL version 2.27.3" in capsys.readouterr().err
