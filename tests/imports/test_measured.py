"""Measurements of other tools are read as printed, and damaged ones are refused with one clear line."""

import pytest

from gpucheck.imports import ImportProblem
from gpucheck.model.diagnosis.observations import Observations
from tests.imports.pastes.reading import BANDWIDTH as PASTES
from tests.imports.pastes.reading import read

P2P, NVB, NVB_JSON = PASTES["p2p-bandwidth-latency.txt"], PASTES["nvbandwidth.txt"], PASTES["nvbandwidth.json"]
NCCL, NCCL_JSON = PASTES["nccl-tests.txt"], PASTES["nccl-tests.json"]


def measured(text: str) -> Observations:
    """What the first part of a text holds, that of a benchmark if lines of NCCL's log stand between its own."""
    return min(read(text).parts, key=lambda part: part.ranges[0].kind == "nccl-log").facts.observed


def without_log(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if "NCCL INFO" not in line)


def test_p2p_bandwidth_latency_test_is_read_in_full():
    found = measured(P2P)

    assert found.measured.method.direction == "write", "reads are printed too"
    assert [gpu.model for gpu in found.gpus] == ["NVIDIA A10"] * 3
    assert [gpu.bus_id for gpu in found.gpus] == ["0000:01:00.0", "0000:17:00.0", "0000:a1:00.0"]
    assert found.p2p_access == ((None, True, True), (True, None, True), (True, True, None))
    assert found.measured.p2p_uni_gb_s == ((None, 9.90, 9.91), (9.92, None, 9.93), (10.01, 10.02, None))
    assert found.measured.staged_uni_gb_s[0] == (None, 20.10, 22.16)
    assert found.measured.p2p_bidir_gb_s[2] == (19.55, 19.56, None)
    assert found.measured.staged_bidir_gb_s[0] == (None, 21.12, 30.53)
    assert found.measured.p2p_latency_us[0] == (None, 2.31, 1.85)
    assert found.measured.staged_latency_us[1] == (11.09, None, 19.16)


def test_nvbandwidth_is_read_with_copy_engines_and_writes_first():
    found = measured(NVB)

    assert [gpu.bus_id for gpu in found.gpus] == ["0000:18:00.0", "0000:2a:00.0"]
    # GPU(row) <- GPU(column): the row is the destination.
    assert found.measured.p2p_uni_gb_s == ((None, 396.40), (396.10, None))
    assert found.measured.p2p_bidir_gb_s == ((None, 782.60), (782.80, None))
    assert found.measured.p2p_latency_us
    assert found.measured.p2p_latency_us[0][1] == pytest.approx(0.7512)
    assert [(row.gpu, row.h2d_gb_s, row.d2h_gb_s) for row in found.measured.host_device] == [
        (0, 55.40, 55.10),
        (1, 55.38, 55.12),
    ]
    assert (found.measured.method.engine, found.measured.method.direction) == ("ce", "write")


def test_nvbandwidth_json_says_the_same_as_its_text():
    text, found = measured(NVB), measured(NVB_JSON)

    assert found.measured.p2p_uni_gb_s == text.measured.p2p_uni_gb_s
    assert found.measured.p2p_bidir_gb_s == text.measured.p2p_bidir_gb_s
    assert [row.h2d_gb_s for row in found.measured.host_device] == [55.4, 55.38]


def test_nccl_tests_give_their_largest_message_transport_and_leftovers():
    found = measured(NCCL)
    (row,) = found.measured.collectives

    assert (row.op, row.ranks, row.bytes, row.busbw_gb_s, row.wrong) == ("all_reduce", 4, 1 << 30, 12.68, 0)
    assert row.transport == "SHM/direct"
    assert found.environment == {"NCCL_P2P_DISABLE": "1"}
    assert [gpu.bus_id for gpu in found.gpus][:2] == ["0000:16:00.0", "0000:27:00.0"]


def test_nccl_tests_json_leaks_no_other_environment():
    found = measured(NCCL_JSON)
    (row,) = found.measured.collectives

    assert (row.op, row.ranks, row.bytes, row.busbw_gb_s, row.wrong) == ("all_reduce", 2, 2 << 30, 352.6, 0)
    assert found.environment == {"NCCL_ALGO": "Tree"}


def test_the_error_column_of_old_versions_is_a_difference_and_no_count():
    old = NCCL.replace("#wrong", " error").replace("12.66      0", "12.66  5e-07")

    without_summary = "\n".join(line for line in old.splitlines() if "Out of bounds" not in line)

    assert measured(without_summary).measured.collectives[0].wrong is None
    assert measured(old).measured.collectives[0].wrong == 0
    assert measured(old.replace("values : 0 OK", "values : 2 FAILED")).measured.collectives[0].wrong == 2


def test_results_that_were_not_compared_are_not_called_right():
    """With -c 0 the column holds N/A, and the summary is "0 OK" all the same."""
    unchecked = NCCL.replace("      0    15980", "    N/A    15980").replace("      0   127010", "    N/A   127010")
    # An operation without an in-place form has N/A on that side alone.
    assert measured(unchecked).measured.collectives[0].wrong == 0

    unchecked = unchecked.replace("12.60      0", "12.60    N/A").replace("12.68      0", "12.68    N/A")
    assert measured(unchecked).measured.collectives[0].wrong is None
    assert measured(unchecked.replace("values : 0 OK", "values : 2 FAILED")).measured.collectives[0].wrong == 2
    with pytest.raises(ImportProblem, match="nan"):
        read(without_log(NCCL).replace("12.60      0", "12.60    nan"))


def test_run_that_stops_before_its_largest_message_is_not_complete():
    whole = without_log(NCCL)
    end = whole[: whole.index("# Out of bounds")]
    assert not read(end).unread
    assert "ended early" in read(end.replace("maxBytes 1073741824", "maxBytes 8589934592")).unread[0].why
    # The last step is smaller than the largest message that was asked for.
    assert not read(end.replace("maxBytes 1073741824", "maxBytes 2000000000")).unread
    assert not read(whole.replace("maxBytes 1073741824", "maxBytes 8589934592")).unread


def test_ranks_of_two_hosts_are_no_one_machine():
    found = measured(NCCL.replace("gpu59 device  3", "gpu60 device  3"))

    assert found.gpus == ()
    assert found.measured.collectives[0].ranks == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (P2P.replace("(GB/s)", "(GiB/s)"), "GiB/s"),
        (P2P.replace("22.16", "nan"), "is not a bandwidth or time"),
        (P2P.replace("22.16", "-3.00"), "is not a bandwidth or time"),
        (P2P.replace("2 \n     0 911.08  20.10", "\n     0 911.08  20.10"), "2 columns in the heading"),
        (NVB.replace("(GB/s)", "(GiB/s)"), "GiB/s"),
        (NVB.replace("396.40       N/A", "396.40       N/A      1.00"), "cells in row 1"),
    ],
    ids=lambda value: repr(value)[-30:],
)
def test_damaged_table_is_left_out_and_named(text, words):
    (part,) = read(text).parts

    assert any(words in row.why for row in part.unread), part.unread
    assert part.unread == read(text).unread
    assert part.facts.observed.measured.p2p_latency_us


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (P2P.replace("  22.16", ""), 0),
        (P2P.replace("20.10  22.16 \n", "20.10  22.1\n"), 0),
        (P2P.replace("20.10  22.16 \n", "20.10  \n"), 0),
        (P2P[: P2P.index("     2  22.18")], 2),
        (P2P[: P2P.index("     1  20.39 920.20  22.26")], 1),
    ],
)
def test_cut_row_has_no_cells_and_the_others_stay(text, row):
    whole = measured(P2P).measured.staged_uni_gb_s
    (part,) = read(text).parts
    found = part.facts.observed.measured.staged_uni_gb_s

    assert [cells for i, cells in enumerate(found) if i < row] == list(whole[:row])
    assert found[row] == (None, None, None)
    assert f"row {row}" in part.unread[0].why


def test_run_without_a_table_has_gpus_and_their_access():
    (part,) = read(P2P[: P2P.index("   D\\D     0      1")]).parts

    assert (len(part.facts.observed.gpus), part.facts.observed.p2p_access[0]) == (3, (None, True, True))
    assert "cut short" in part.unread[0].why


def test_table_that_lost_columns_is_left_out():
    """Cut at the width of a terminal: the last number of each row may have lost its end."""
    lines = P2P.split("\n")
    at = next(i for i, line in enumerate(lines) if "P2P=Enabled Bandwidth (P2P Writes)" in line)
    lines[at + 1 : at + 5] = [line[:20] for line in lines[at + 1 : at + 5]]
    (part,) = read("\n".join(lines)).parts

    assert "2 columns in the heading" in part.unread[0].why
    assert part.facts.observed.measured.p2p_uni_gb_s[0][1] == 8.90, "the reads are left"
    assert part.facts.observed.measured.method.direction == "read"


def test_number_between_two_gpus_proves_peer_access():
    """nvbandwidth skips a pair unless CUDA grants access."""
    assert measured(NVB).p2p_access == ((None, True), (True, None))
    assert measured(NVB_JSON).p2p_access == ((None, True), (True, None))
    assert measured(NVB.replace("Running device", "Running multinode_device")).p2p_access is None
    host_only = NVB[: NVB.index("Running device_to_device")]
    assert measured(host_only).p2p_access is None


def test_pair_of_a_whole_table_without_a_number_has_no_peer_access():
    """What nvbandwidth skips is N/A, and 0.00 in version 0.2; a row that was cut says nothing."""
    table = (
        "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)\n  0  1  2\n0 N/A 274.1 {0}\n1 274.2 N/A {0}\n2 {0} {0} N/A"
    )
    denied = ((None, True, False), (True, None, False), (False, False, None))

    assert measured(table.format("N/A")).p2p_access == measured(table.format("0.00")).p2p_access == denied
    assert measured(table.format("N/A").rpartition("\n")[0]).p2p_access == (
        (None, True, None), (True, None, None), (None, None, None)
    )  # fmt: skip


def test_cell_of_zero_is_no_rate_that_was_reached():
    """p2pBandwidthLatencyTest copies between all pairs, with or without access."""
    table = "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n D\\D 0 1\n 0 900.0 {}\n 1 22.1 900.0\n"

    assert not read(table.format("22.1")).unread
    assert "GPU 0 to 1" in read(table.format("0.00")).unread[0].why


CONNECTIVITY = """P2P Connectivity Matrix
     D\\D     0     1     2
     0\t     1     1     0
     1\t     1     1     0
     2\t     0     0     1
"""


def test_connectivity_matrix_is_read_and_the_lines_of_pairs_count_first():
    alone = measured(CONNECTIVITY + P2P[P2P.index("Unidirectional P2P=Disabled") :])
    assert alone.p2p_access == ((None, True, False), (True, None, False), (False, False, None))

    both = measured(P2P.replace("Unidirectional P2P=Disabled", CONNECTIVITY + "Unidirectional P2P=Disabled", 1))
    assert both.p2p_access == ((None, True, True), (True, None, True), (True, True, None))


@pytest.mark.parametrize("end", ["      0", " 464.84      0", "  12.68      0"])
def test_cut_row_of_nccl_tests_is_not_shifted(end):
    """Without its last words a row would be read with the time as bandwidth."""
    last = next(line for line in reversed(without_log(NCCL).splitlines()) if line.strip().startswith("1073741824"))
    (part,) = read(without_log(NCCL).replace(last, last[: -len(end)])).parts

    assert part.facts.observed.measured.collectives[0].bytes < 1 << 30
    assert part.unread[0].why.endswith("the row breaks off")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NVB_JSON[:400], "damaged JSON"),
        (NVB_JSON.replace('"396.1"', '"nan"'), "is not a bandwidth or time"),
        (NVB_JSON.replace('["396.4", "N/A"]', '["396.4"]'), "no complete row 1"),
        (NCCL_JSON[:-40], "damaged JSON"),
        (NCCL_JSON.replace("352.6", '"nan"'), "is not a bandwidth or time"),
        (without_log(NCCL[: NCCL.index("   134217728")]), "no row with a bus bandwidth"),
    ],
    ids=lambda value: repr(value)[-30:],
)
def test_damaged_input_is_one_clear_line(text, words):
    with pytest.raises(ImportProblem) as problem:
        measured(text)

    assert words in str(problem.value)
    assert "\n" not in str(problem.value)
    assert len(str(problem.value)) < 400
