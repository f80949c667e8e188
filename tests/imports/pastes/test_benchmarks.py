"""bandwidthTest, simpleP2P, p2pBandwidthLatencyTest, nvbandwidth and SuperBench: details of their readers."""

import pytest

from gpucheck import imports
from tests.imports.pastes.reading import BANDWIDTH, messages, observed, read

P2P, NVB = BANDWIDTH["p2p-bandwidth-latency.txt"], BANDWIDTH["nvbandwidth.txt"]
# One copy that counts: from pinned memory, of one device, and large.
HOST_COPY = (
    "Device {0}: Tesla T4\nQuick Mode\nHost to Device Bandwidth, 1 Device(s)\nPINNED Memory Transfers\n"
    "  Transfer Size (Bytes)   Bandwidth(GB/s)\n  32000000    12.1\n"
)


def matrix_of(count: int) -> str:
    heads = "".join(f"{i:7}" for i in range(count))
    rows = "".join(f"{i:6}" + "  22.16" * count + "\n" for i in range(count))
    return f"Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D{heads}\n{rows}"


def wrapped(text: str, width: int) -> str:
    return "".join(line[at : at + width] + "\n" for line in text.splitlines() for at in range(0, len(line) or 1, width))


def test_a_matrix_of_16_that_a_terminal_broke_is_put_together():
    whole = matrix_of(16)

    # 76 columns: six of label, then ten cells of seven.
    assert observed(wrapped(whole, 76)) == observed(whole)


def test_cells_that_grew_together_are_parted():
    assert observed(matrix_of(3).replace("  22.16  22.16  22.16", "  22.1622.1622.16", 1)) == observed(matrix_of(3))


def test_a_heading_that_lost_its_first_word_is_read_only_where_it_is_sure():
    writes = matrix_of(2).replace("Unidirectional ", "")
    assert observed(writes).measured.p2p_uni_gb_s
    with pytest.raises(imports.ImportProblem):
        read(writes.replace(" (P2P Writes)", ""))


def test_nvbandwidth_stopped_by_an_error_keeps_its_tables_and_says_the_error():
    error = "[CUDA_ERROR_SYSTEM_NOT_READY] system not yet initialized in expression cuInit(0) in main() : x.cpp:9"
    text = f"{NVB}\n{error}\n"

    assert any(one.facts.observed.measured.p2p_uni_gb_s for one in read(text).parts)
    # The line may also be read as an error of CUDA, whoever printed it.
    assert [message.text for message in messages(text)] == [error]


def test_nvbandwidth_of_one_gpu_gives_its_sums_to_it():
    text = (
        "nvbandwidth Version: v0.8\nDevice 0: NVIDIA H100 PCIe (00000000:41:00)\nSUM host_to_device_memcpy_ce 55.10\n"
    )
    (row,) = observed(text).measured.host_device

    assert (row.gpu, row.h2d_gb_s, row.d2h_gb_s) == (0, 55.10, None)
    assert observed(text.replace("Device 0", "Device 1")).measured.host_device == ()


@pytest.mark.parametrize(
    ("words", "new"),
    [("PINNED", "PAGEABLE"), ("1 Device(s)", "2 Device(s)"), ("32000000", "  320000")],
    ids=["pageable", "several", "small"],
)
def test_copies_that_say_nothing_of_the_link_are_left_out(words, new):
    text = HOST_COPY.format(0)

    assert observed(text).measured.host_device[0].h2d_gb_s == 12.1
    assert observed(text.replace(words, new)).measured.host_device == ()


def test_a_copy_that_moved_nothing_or_a_run_that_failed_is_not_healthy():
    back = HOST_COPY.format(0).replace("Host to Device", "Device to Host")
    whole = f"{HOST_COPY.format(0)}{back.partition(chr(10))[2]}Result = PASS\n"

    assert not read(whole).unread
    assert "failed" in read(whole.replace("PASS", "FAIL")).unread[0].why
    assert "no rate" in read(whole.replace("12.1\nResult", "0.0\nResult")).unread[0].why


def test_simple_p2p_that_passed_says_that_the_data_was_right():
    text = "CUDA-capable device count: 2\ncudaMemcpyPeer / cudaMemcpy between GPU0 and GPU1: 10.00GB/s\nTest passed\n"

    assert observed(text).measured.integrity_bad_pairs == ()
    assert observed(text.replace("count: 2", "count: 4")).measured.integrity_bad_pairs is None
    assert observed(text).measured.p2p_uni_gb_s[0][1] == pytest.approx(10.737, abs=1e-3)
    assert not read(text).unread
    assert "no rate" in read(text.replace("10.00", "0.00")).unread[0].why


FAILED_TEST = """{{"nvbandwidth": {{"devices": ["0: NVIDIA A10 (00000000:18:00)", "1: NVIDIA A10 (00000000:2a:00)"],
"testcases": [
{{"name": "host_to_device_memcpy_ce", "status": "Passed", "bandwidth_matrix": [["25.4", "25.3"]],
"bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)"}},
{{"name": "device_to_device_memcpy_read_ce", "status": "{}"}}]}}}}"""
ONE_NODE = '{{"node": "n0", "mem-bw/return_code": 0, "mem-bw/H2D_Mem_BW:0": {}, "nccl-bw/return_code": {}}}'


def test_a_test_that_failed_is_not_left_out():
    """Of nvbandwidth by its status, of SuperBench by the code that the benchmark returned."""
    assert not read(FAILED_TEST.format("Waived")).unread
    assert "device_to_device_memcpy_read_ce" in read(FAILED_TEST.format("Error")).unread[0].why
    assert not read(ONE_NODE.format(25.4, 0)).unread
    assert "nccl-bw/return_code" in read(ONE_NODE.format(25.4, 32)).unread[0].why
    assert "H2D_Mem_BW:0" in read(ONE_NODE.format(0, 0)).unread[0].why
