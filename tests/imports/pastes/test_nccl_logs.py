"""Logs of NCCL from public places, each read to the channels, the version and the warnings that are in it."""

from collections import Counter
from pathlib import Path

import pytest

from gpucheck.imports.nccl.log import LIBRARY, channel_in, records
from gpucheck.model import Verdict
from tests.imports.pastes.reading import diagnosed, keys, messages
from tests.shared import from_yaml, sampled

FOLDER = Path(__file__).parents[2] / "data" / "nccl"
CASES = [from_yaml(path) for path in sorted(FOLDER.glob("log-*.yml"))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_a_log_reads_to_what_its_source_says(case):
    expect, lines = case["expect"], case["raw"].splitlines()
    channels = [found for line in lines for one in records(line) if (found := channel_in(one.text))]
    version = LIBRARY.search(case["raw"])
    evidence = " ".join(message.text for message in messages(case["raw"]))

    assert sum(Counter(channel.way for channel in channels).values()) == sum(expect["transports"].values())
    # ``SHM`` stands for each of its kinds.
    assert {way: sum(c.way.startswith(way) for c in channels) for way in expect["transports"]} == expect["transports"]
    for pair, way in expect["pairs"].items():
        assert any(f"{c.one}-{c.other}" == pair and c.way.startswith(way) for c in channels), pair
    assert (version["version"] if version else None) == expect["version"]
    assert all(text in evidence for text in expect["warnings"])
    assert ("nccl-log.nvls-mixed" in keys(case["raw"])) is (expect["nvls"] == "mixed")
    assert diagnosed(case["raw"]).verdict is not Verdict.PASS


@pytest.mark.parametrize(
    "line",
    [
        "n:1:2 [0] misc/foo.cc:3 NCCL WARN Something that no table has",
        "n:1:2 [0] NCCL INFO Something failed that no table has",
        "n:1:2 [0] NCCL INFO misc/socket.cc:47 -> 3",
        "n:1:2 [0] NCCL INFO comm 0x55 rank 0 nranks 2 cudaDev 0 busId d000 - Abort COMPLETE",
    ],
)
def test_a_failure_that_no_table_has_is_quoted_and_no_pass(line):
    """Also next to a result that passes."""
    (finding,) = diagnosed(line).findings

    assert (finding.verdict, finding.subject) == (Verdict.UNKNOWN, "host")
    assert line in finding.evidence
    assert finding.fix


@pytest.mark.parametrize(
    "line",
    [
        "n:1:2 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v10 symbol.",
        "n:1:2 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        "n:1:2 [0] NCCL INFO TUNER/Plugin: Could not find: libnccl-tuner.so. Using internal tuner plugin.",
        "n:1:2 [0] NCCL INFO PROFILER/Plugin: Could not find: libnccl-profiler.so.",
        "n:1:2 [0] NCCL INFO Failed to open libibverbs.so[.1]",
        "n:1:2 [0] NCCL INFO Failed to initialize NET plugin IB",
        "n:1:2 [0] NCCL INFO NET/IB : No device found.",
        "n:1:2 [0] NCCL INFO ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856",
        "n:1:2 [0] NCCL INFO DMA-BUF is available on GPU device 0",
    ],
)
def test_what_nccl_prints_on_every_healthy_host_is_quiet(line):
    """The only finding is that a line of a log is no evidence of a healthy host."""
    assert [finding.code for finding in diagnosed(line).findings] == ["pastes.no-evidence"]


def test_a_failure_after_thousands_of_harmless_lines_is_kept():
    plugins = "".join(
        f"n:{pid}:2 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v{pid % 9} symbol.\n" for pid in range(3000)
    )
    warning = "n:1:2 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-x to 9637892 bytes\n"

    assert "nccl-log.shm-full" in keys(plugins + warning)


RANK = (Verdict.PASS, Verdict.UNKNOWN, Verdict.WARN, Verdict.FAIL)
NEW = "n:1:2 [0] misc/foo.cc:3 NCCL WARN aPhraseOfTheYear2031"


@pytest.mark.parametrize("case", sampled(CASES, lambda number, _: number % 4 == 0), ids=lambda case: str(case["id"]))
def test_less_of_a_log_is_never_a_pass_and_an_unknown_warning_never_makes_it_better(case):
    """Every line is left out once, and the warning is put into every place."""
    lines = case["raw"].splitlines()
    before = RANK.index(diagnosed(case["raw"]).verdict)
    for at in range(len(lines)):
        rest = "\n".join([*lines[:at], *lines[at + 1 :]])
        assert not rest.strip() or diagnosed(rest).verdict is not Verdict.PASS
    for at in range(len(lines) + 1):
        after = diagnosed("\n".join([*lines[:at], NEW, *lines[at:]]))
        assert RANK.index(after.verdict) >= max(before, RANK.index(Verdict.UNKNOWN))
