"""bandwidthTest, simpleP2P, p2pBandwidthLatencyTest, nvbandwidth and SuperBench: details of their readers."""

from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck import imports
from gpucheck.model.diagnosis.observations import Observations
from gpucheck.model.diagnosis.paste import Part

DATA = Path(__file__).parents[2] / "data"
CASES = [yaml.safe_load(path.read_text(encoding="utf-8"))["raw"] for path in sorted((DATA / "pastes").glob("*.yml"))]
P2P = (DATA / "bandwidth" / "p2p-bandwidth-latency.txt").read_text(encoding="utf-8")
NVB = (DATA / "bandwidth" / "nvbandwidth.txt").read_text(encoding="utf-8")


def part(text: str) -> Part:
    return imports.read_all(text.encode(), "paste.txt").parts[0]


def seen(text: str) -> Observations:
    return part(text).observations


def matrix_of(count: int, number: str = "22.16") -> str:
    heads = "".join(f"{i:7}" for i in range(count))
    rows = "".join(f"{i:6}" + f" {number:>6}" * count + "\n" for i in range(count))
    return f"Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D{heads}\n{rows}"


def wrapped(text: str, width: int) -> str:
    return "".join(line[at : at + width] + "\n" for line in text.splitlines() for at in range(0, len(line) or 1, width))


@pytest.mark.parametrize("count", [1, 2, 8, 16])
def test_one_matrix_alone_is_enough(count):
    found = seen(matrix_of(count))

    assert len(found.gpus) == count
    assert len(found.measured.p2p_uni_gb_s) == count


def test_a_matrix_of_16_that_a_terminal_broke_is_put_together():
    whole = matrix_of(16)

    # 76 columns: six of label, then ten cells of seven.
    assert seen(wrapped(whole, 76)) == seen(whole)


def test_cells_that_grew_together_are_parted():
    assert seen(matrix_of(3).replace("  22.16  22.16  22.16", "  22.1622.1622.16", 1)) == seen(matrix_of(3))


def test_a_heading_that_lost_its_first_word_is_read_only_where_it_is_sure():
    writes = matrix_of(2).replace("Unidirectional ", "")
    assert seen(writes).measured.p2p_uni_gb_s
    with pytest.raises(imports.ImportProblem):
        imports.read_all(writes.replace(" (P2P Writes)", "").encode(), "paste.txt")


def test_of_a_run_that_was_cut_the_whole_tables_are_read():
    cut = P2P[: P2P.rindex("Latency")]
    found = seen(cut[: cut.rindex("\n", 0, len(cut) - 60)])

    assert found.measured.p2p_uni_gb_s
    assert found.measured.staged_uni_gb_s


def test_of_nvbandwidth_that_was_cut_the_whole_tables_are_read():
    found = seen(NVB[: NVB.index(" 1    390.20")])

    assert [row.h2d_gb_s for row in found.measured.host_device] == [55.40, 55.38]


def test_a_damaged_cell_is_not_left_out_silently():
    with pytest.raises(imports.ImportProblem, match="not a bandwidth or time"):
        imports.read_all(P2P.replace("22.16", "nan", 1).encode(), "paste.txt")


def test_nvbandwidth_stopped_by_an_error_keeps_its_tables_and_says_the_error():
    error = "[CUDA_ERROR_SYSTEM_NOT_READY] system not yet initialized in expression cuInit(0) in main() : x.cpp:9"
    parts = imports.read_all(f"{NVB}\n{error}\n".encode(), "paste.txt").parts

    assert any(one.observations.measured.p2p_uni_gb_s for one in parts)
    # The line may also be read as an error of CUDA, whoever printed it.
    assert [message.text for one in parts for message in one.messages] == [error]


def test_nvbandwidth_of_one_gpu_gives_its_sums_to_it():
    text = (
        "nvbandwidth Version: v0.8\nDevice 0: NVIDIA H100 PCIe (00000000:41:00)\nSUM host_to_device_memcpy_ce 55.10\n"
    )
    (row,) = seen(text).measured.host_device

    assert (row.gpu, row.h2d_gb_s, row.d2h_gb_s) == (0, 55.10, None)
    assert seen(text.replace("Device 0", "Device 1")).measured.host_device == ()


def test_nvbandwidth_names_the_host_above_its_devices():
    text = NVB.replace("Device 0:", "node07\nDevice 0:", 1)
    reading = imports.read_all(text.encode(), "paste.txt")

    assert len(reading.parts) == 1
    assert [gpu.bus_id for gpu in reading.parts[0].observations.gpus] == ["0000:18:00.0", "0000:2a:00.0"]


@pytest.mark.parametrize(
    ("words", "new"),
    [("PINNED", "PAGEABLE"), ("1 Device(s)", "2 Device(s)"), ("32000000", "  320000")],
    ids=["pageable", "several", "small"],
)
def test_copies_that_say_nothing_of_the_link_are_left_out(words, new):
    text = "Device 0: Tesla T4\nQuick Mode\nHost to Device Bandwidth, 1 Device(s)\nPINNED Memory Transfers\n"
    text += "  Transfer Size (Bytes)   Bandwidth(GB/s)\n  32000000    12.1\n"

    assert seen(text).measured.host_device[0].h2d_gb_s == 12.1
    assert seen(text.replace(words, new)).measured.host_device == ()


def test_bandwidth_test_of_another_device_names_that_one():
    text = "Device 3: Tesla T4\nQuick Mode\nHost to Device Bandwidth, 1 Device(s)\nPINNED Memory Transfers\n"
    found = seen(text + "  Transfer Size (Bytes)   Bandwidth(GB/s)\n  32000000    12.1\n")

    assert [gpu.model for gpu in found.gpus] == [None, None, None, "Tesla T4"]
    assert found.measured.host_device[0].gpu == 3


def test_simple_p2p_that_passed_says_that_the_data_was_right():
    text = "CUDA-capable device count: 2\ncudaMemcpyPeer / cudaMemcpy between GPU0 and GPU1: 10.00GB/s\nTest passed\n"

    assert seen(text).measured.integrity_bad_pairs == ()
    assert seen(text.replace("count: 2", "count: 4")).measured.integrity_bad_pairs is None
    assert seen(text).measured.p2p_uni_gb_s[0][1] == pytest.approx(10.737, abs=1e-3)


def test_superbench_names_its_node():
    found = part(
        '{"node": "n1", "mem-bw/H2D_Mem_BW:0": 25.6, "nvbandwidth/device_to_device_memcpy_write_ce_gpu0_gpu1_bw": 5}'
    )

    assert found.machine == "n1"
    # A row of a table of writes is the destination.
    assert found.observations.measured.p2p_uni_gb_s == ((None, None), (5.0, None))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A paste that was cut, whose lines changed places or got lost, or with bytes of anything."""
    lines = draw(st.sampled_from(CASES)).splitlines()
    for _ in range(draw(st.integers(0, 4))):
        one, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        lines[one], lines[other] = lines[other], lines[one]
    for _ in range(draw(st.integers(0, 4))):
        if len(lines) > 1:
            del lines[draw(st.integers(0, len(lines) - 1))]
    data = "\n".join(lines).encode()
    at = draw(st.integers(0, len(data)))
    return (
        data[:at] + draw(st.binary(max_size=6)) + data[at + draw(st.integers(0, 40)) : draw(st.integers(0, 4000)) + at]
    )


@settings(max_examples=100)
@given(damaged())
def test_no_damage_gives_a_traceback(data):
    with suppress(imports.ImportProblem):
        imports.read_all(data, "paste.txt")
