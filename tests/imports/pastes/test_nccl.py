"""Logs of NCCL, errors of CUDA, flight recorder dumps, and runs of nccl-tests in one text."""

import json

import pytest

from gpucheck.imports.nccl.log import records
from gpucheck.model import Verdict
from tests.imports.pastes.reading import BANDWIDTH, accused, diagnosed, keys, messages

TABLE = BANDWIDTH["nccl-tests.txt"]
PLAIN_TABLE = "\n".join(line for line in TABLE.splitlines() if "NCCL" not in line)


WARN = Verdict.WARN
# Eight A100 as through host memory.
SLOW = "\n".join(
    [
        "$ {}",
        "# nThread 1 nGpus 8 minBytes 4294967296 maxBytes 4294967296 step: 2(factor) validation: 1 graph: 0",
        *(f"#  Rank  {n} Group  0 Pid 7 on node1 device  {n} [0x{n}7] NVIDIA A100-SXM4-80GB" for n in range(8)),
        "#       size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
        "  4294967296    1073741824     float     sum -1 704000 6.1 10.7 0 704000 6.1 10.7 0",
        "# Out of bounds values : 0 OK",
    ]
)


def collectives(text):
    return diagnosed(text).observations.measured.collectives


def test_two_messages_in_one_line_are_two():
    line = "a:1:2 [0] NCCL INFO Connected all ringsa:1:3 [1] misc/x.cc:1 NCCL WARN Mismatched NCCL version detected"

    assert [one.level for one in records(line)] == ["INFO", "WARN"]


def test_a_table_between_lines_of_the_log_is_put_together_again():
    lines = TABLE.splitlines()
    mixed = []
    for number, line in enumerate(lines):
        mixed += [line, f"gpu59:1:{number} [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct"]
    found = diagnosed("\n".join(line for line in mixed if "set by environment" not in line))

    assert found.unread == ()
    (row,) = found.observations.measured.collectives
    assert (row.op, row.ranks, row.busbw_gb_s, row.transport) == ("all_reduce", 4, 12.68, "SHM/direct")


def test_the_transport_of_a_log_is_joined_to_one_collective_only():
    log = "gpu59:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
    other = PLAIN_TABLE.replace("12.68", "13.68")

    assert [row.transport for row in collectives(log + PLAIN_TABLE)] == ["P2P/IPC"]
    assert [row.transport for row in collectives(f"{log}{PLAIN_TABLE}\n{other}")] == [None, None]
    assert collectives(log) == ()


def test_several_runs_in_one_text_are_a_collective_each():
    text = f"$ ./build/all_reduce_perf -g 4\n{PLAIN_TABLE}\n$ ./build/reduce_scatter_perf -g 4\n{PLAIN_TABLE}"

    assert [row.op for row in collectives(text)] == ["all_reduce", "reduce_scatter"]


@pytest.mark.parametrize("command", ["NCCL_P2P_DISABLE=1 ./{}", "mpirun -np 8 -x NCCL_P2P_DISABLE=1 ./{}"])
def test_a_variable_on_the_command_line_explains_its_own_run_and_no_other(command):
    run = SLOW.format(command.format("build/all_reduce_perf -g 8"))
    alone, both = diagnosed(run), diagnosed(run, SLOW.format("./build/all_reduce_perf -g 8"))

    assert (alone.verdict, accused(alone)) == (WARN, {"leftover-environment"})
    assert "collectives.below-links" in {one.code for one in both.findings if one.verdict is Verdict.FAIL}


def test_gpus_of_a_log_on_some_of_the_gpus_do_not_contradict_a_whole_machine():
    seats = "".join(
        f"n:{r}:1 [{r}] NCCL INFO ncclCommInitRank comm 0x7 rank {r} nranks 2 cudaDev {r} nvmlDev {r} busId {r + 1}a000"
        " commId 0xb - Init COMPLETE\n"
        for r in range(2)
    )
    found = diagnosed(seats + TABLE)

    assert len(diagnosed(seats).observations.gpus) == 2
    assert len(found.observations.gpus) == 4


def test_old_bus_numbers_that_two_gpus_share_are_no_bus_ids():
    text = TABLE.replace("[0x16]", "[0x00]").replace("[0x27]", "[0x00]")

    assert {gpu.bus_id for gpu in diagnosed(text).observations.gpus} == {None}


def test_of_several_hosts_nothing_but_the_environment_is_of_one_machine():
    text = "".join(
        f"{host}:1:1 [0] NCCL INFO ncclCommInitRank comm 0x7 rank {r} nranks 2 cudaDev 0 busId 1a000 - Init COMPLETE\n"
        f"{host}:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.\n"
        for r, host in enumerate(("a", "b"))
    )
    found = diagnosed(text)

    assert found.observations.gpus == ()
    assert found.observations.environment == {"NCCL_P2P_DISABLE": "1"}
    assert "2 hosts" in found.looked_at[0]


def test_a_gpu_that_a_message_names_is_the_subject():
    found = diagnosed("Unable to determine the device handle for GPU0000:17:00.0: Unknown Error")

    assert [finding.subject for finding in found.findings] == ["gpu:0000:17:00.0"]


def _dump(enqueued, completed, state="started", op="nccl:all_reduce", text=True):
    number = str if text else int
    status = {"last_enqueued_collective": number(enqueued), "last_completed_collective": number(completed)}
    entries = [
        {"pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": i, "profiling_name": op}
        | {"state": "completed" if i <= completed else state}
        for i in range(1, enqueued + 1)
    ]
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return {"version": "2.10", "pg_config": config, "pg_status": {"0": status}, "entries": entries}


def _dumps(*dumps, indent=None):
    return "\n".join(f"nccl_trace_rank_{i}\n{json.dumps(dump, indent=indent)}" for i, dump in enumerate(dumps))


@pytest.mark.parametrize("indent", [None, 1])
def test_the_rank_that_did_not_enter_a_collective_is_named(indent):
    text = _dumps(_dump(5, 3), _dump(3, 3, text=False), indent=indent)

    assert keys(text) == ["torch-flight-recorder.behind"]
    assert "rank 1 entered fewer" in messages(text)[0].text
    assert diagnosed(text).verdict is Verdict.WARN


def test_ranks_that_all_entered_accuse_nobody():
    assert keys(_dumps(_dump(5, 3), _dump(5, 3))) == ["torch-flight-recorder.incomplete"] * 2
    assert keys(_dumps(_dump(5, 5), _dump(3, 3))) == []
    assert keys(_dumps(_dump(5, 3, op="nccl:all_gather"), _dump(5, 3)))[-1] == "torch-flight-recorder.differs"
