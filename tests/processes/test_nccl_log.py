"""Transports, algorithms, warnings and errors from the log of NCCL."""

from hypothesis import given
from hypothesis import strategies as st

from gpucheck.processes.ranks.nccl_log import SHOW, error_text, parse, read
from tests.measure.collectives.samples import NCCL_ERROR

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
