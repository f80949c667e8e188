"""Real gloo ranks on this host: every collective, errors, signals, deadlines and the environment."""

import json
import subprocess
import sys

import pytest

from gpucheck.measure.collectives import run
from gpucheck.measure.collectives.rank import ALL, RankOptions
from gpucheck.measure.collectives.run import launch
from gpucheck.model import Verdict
from gpucheck.processes.ranks.nodes import Nodes
from tests.measure.collectives.samples import NCCL_ERROR, stated
from tests.shared import END_S, sampled
from tests.train.conftest import free_port

pytestmark = pytest.mark.slow


BROKEN = """
import os, sys
if sys.orig_argv[-1] == "1":
    import torch.distributed
    def breaks(*arguments, **more):
        raise {error}
    torch.distributed.{call} = breaks
"""


def broken_rank(tmp_path, call, error):
    """Two real gloo ranks, of which one raises this in that call."""
    (tmp_path / "sitecustomize.py").write_text(BROKEN.format(call=call, error=error))
    options = RankOptions(backend="gloo", operations=("all_reduce", "all_to_all"), sizes=(4096,), samples=2)
    return launch(options, 2, PYTHONPATH=str(tmp_path))


@pytest.mark.parametrize("call", sampled(["all_reduce", "all_to_all_single"], (0,)))
def test_an_error_of_one_rank_fails_and_does_not_hang_the_others(tmp_path, call):
    """Whatever its text: "not supported" is how the most frequent errors of a first run begin."""
    ended = broken_rank(tmp_path, call, f"torch.distributed.DistBackendError({NCCL_ERROR!r})")
    finding = stated(ended)["collectives"][0]

    assert ended.reason == "broken"
    assert finding.verdict is Verdict.FAIL
    assert str(finding.seen).startswith("rank 1 failed: Cuda failure 217 'peer access is not supported")


@pytest.mark.parametrize(("number", "verdict"), sampled([(9, Verdict.UNKNOWN), (11, Verdict.FAIL)], (0,)))
def test_a_rank_that_a_signal_ends_is_named_before_those_that_lost_it(tmp_path, number, verdict):
    ended = broken_rank(tmp_path, "all_reduce", f"SystemExit(os.kill(os.getpid(), {number}))")
    finding = stated(ended)["collectives"][0]

    assert finding.verdict is verdict
    assert f"rank 1 was terminated by {'SIGKILL' if number == 9 else 'SIGSEGV'}" in str(finding.seen)


def test_a_rank_that_does_not_reach_its_gpu_is_unknown():
    """A build of torch without CUDA, as here, or a GPU that CUDA_VISIBLE_DEVICES hides."""
    options = RankOptions(backend="nccl", operations=("all_reduce",), sizes=(4096,), bus_ids=("0000:1b:00.0",) * 2)
    finding = stated(launch(options, 2))["collectives"][0]

    assert finding.verdict is Verdict.UNKNOWN
    assert "(0000:1b:00.0) is not among the 0 that torch " in str(finding.seen)


def test_ranks_that_do_not_end_in_time_show_the_calls_they_are_in():
    options = RankOptions(
        backend="gloo", operations=("all_reduce",), sizes=(1 << 28,), iterations=100_000, timeout_s=2.0
    )
    ended = launch(options, 2)

    assert ended.is_late
    assert any("collectives/rank.py" in frame for frame in ended.ranks[0].stack)
    assert ended.ranks[1].stack
    (stuck,) = stated(ended, gpus=False)["collectives"]
    assert any(line.startswith("rank 0 is in ") for line in stuck.evidence)


def test_ranks_that_never_meet_end_at_the_deadline(monkeypatch):
    """Only one of two hosts comes: nobody is waited for longer than was said."""
    nodes = Nodes(count=2, rank=0, host="127.0.0.1", port=free_port(), interface="lo")
    options = RankOptions(backend="gloo", operations=("all_reduce",), sizes=(4096,), timeout_s=60.0, nodes=nodes)
    monkeypatch.setattr(run, "START_S", 2.0)
    ended = launch(options, 1)

    assert ended.is_late
    assert ended.seconds < options.timeout_s, "not by the limit of the collective itself"
    assert [run.place_of(end) for end in ended.ranks] in (["start"], ["rendezvous"]), "as far as a rank comes alone"


def test_two_cpu_ranks_run_every_collective_exactly():
    words = [sys.executable, "-m", "gpucheck", "collectives", "--sizes", "4K", "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=END_S)

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["schema"], report["backend"], report["ranks"]) == ("gpucheck.collectives/1", "gloo", 2)
    assert [(r["operation"], r["wrong"], r["checked"]) for r in report["results"]] == [(name, 0, 7) for name in ALL]
    assert all(r["busbw_gb_s"] > 0 for r in report["results"])
