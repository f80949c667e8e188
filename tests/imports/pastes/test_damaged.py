"""Damaged pastes, and the bytes of anything: they are read or rejected, and nothing else is raised."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck import imports
from gpucheck.run.pastes import diagnosis
from tests.imports.pastes.reading import BANDWIDTH, RAW, read

GROUPS = {
    "issue": ("issue-",),
    "nccl": ("nccl-", "cuda-error", "torch-"),
    "nvidia-smi": ("nvidia-smi-",),
    "pci": ("lspci", "module", "dcgmi", "fabric", "perftest", "ib", "rdma"),
    "all": ("",),
}
CORPORA = {group: [raw for name, raw in RAW.items() if name.startswith(names)] for group, names in GROUPS.items()} | {
    "benchmark": list(BANDWIDTH.values())
}
INSERTED = [b"9" * 400, b"1e309", b"\t\t", b"{", b"[[", b"\x00", b"GPU(row)", b"\xff\xfe"]


def damaged_lines(draw: st.DrawFn, lines: list[str]) -> list[str]:
    at, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    change = draw(st.sampled_from(("cut", "delete", "double", "noise", "swap")))
    if change == "cut":
        lines[at] = lines[at][: draw(st.integers(0, 60))]
    elif change == "delete" and len(lines) > 1:
        del lines[at]
    elif change == "double":
        lines.insert(at, lines[other])
    elif change == "swap":
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at] += draw(st.text(max_size=20))
    return lines


@st.composite
def damaged(draw: st.DrawFn, corpus: list[str]) -> bytes:
    """One paste or two, with lines that were cut, lost, repeated or exchanged, and a piece of something else."""
    lines = "\n".join(draw(st.lists(st.sampled_from(corpus), min_size=1, max_size=2))).split("\n")
    for _ in range(draw(st.integers(0, 8))):
        lines = damaged_lines(draw, lines)
    data = "\n".join(lines).encode("utf-8", errors="replace")
    at, lost = draw(st.integers(0, len(data))), draw(st.integers(0, 40) | st.integers(0, 4000))
    return data[:at] + draw(st.sampled_from([b"", *INSERTED]) | st.binary(max_size=40)) + data[at + lost :]


@pytest.mark.parametrize("group", CORPORA)
def test_damaged_paste_is_read_or_rejected(group):
    @settings(max_examples=100)
    @given(damaged(CORPORA[group]))
    def read_and_diagnosed(data):
        with suppress(imports.ImportProblem):
            found = read(data)
            assert found.parts
            diagnosis([found], sources=("paste.txt",))

    read_and_diagnosed()


@settings(max_examples=40)
@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_rejected(data):
    with suppress(imports.ImportProblem):
        assert read(data).parts
