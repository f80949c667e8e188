"""NCCL topology XML that is broken, hostile or enormous ends in a topology or in one clear line, in little memory."""

import tracemalloc

import pytest

from gpucheck.imports import ImportProblem, read
from gpucheck.model import Verdict
from tests.imports import nccl
from tests.imports.nccl import cpu, gpu, hgx, pci, system
from tests.shared import sampled

BOMB = '<!DOCTYPE lolz [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;">]><system version="1"><cpu numaid="&b;"/></system>'
OUTSIDE = '<!DOCTYPE system SYSTEM "file:///etc/passwd"><system version="1"><cpu numaid="0"/></system>'


def read_or_none(text):
    """The topology, or None for input that is refused as it should be."""
    try:
        return read(text)
    except ImportProblem as problem:
        return None if "\n" not in str(problem) and len(str(problem)) < 600 else pytest.fail(str(problem))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "declares a document type"),
        (OUTSIDE, "declares a document type"),
        (hgx()[:-400], "cut short"),
        (system(cpu(0)), "no GPU in this NCCL topology XML"),
        (system("<pci>" * 200 + "</pci>" * 200), "nested more than"),
        (system(cpu(0, '<pci a="' + "x" * 9999 + '"/>')), "longer than"),
        (system('<cpu numaid="&undefined;"/>'), "undefined entity"),
        ('<graphs version="1"><graph id="0" pattern="4"/></graphs>', "NCCL_GRAPH_DUMP_FILE"),
        ('<root><system version="1"><cpu/></system></root>', "no GPU"),
    ],
)
def test_what_is_no_topology_is_refused_in_one_line_with_the_next_step(text, words):
    with pytest.raises(ImportProblem) as problem:
        read(text)

    message = str(problem.value)
    assert words in message
    assert "\n" not in message
    assert "NCCL_TOPO_DUMP_FILE" in message


def test_the_line_of_the_damage_is_that_of_the_file():
    with pytest.raises(ImportProblem, match="line 4"):
        read("a log\n\n" + '<system version="1">\n<cpu numaid=0></cpu></system>')


def test_oddities_are_told_and_left_out():
    text = system(cpu(0, gpu("0001:00:00.0", 0), pci("nonsense", nccl.GPU)), '<gpu dev="9"/>')
    findings = read(text).findings

    assert [f.verdict for f in findings] == [Verdict.WARN, Verdict.WARN]
    assert "nonsense" in str(findings[0].seen)


NOISE = (
    '<system version="1"><cpu numaid="0">' + "<pci/>" * (1 << 20),
    '<system version="1"><cpu numaid="0">' + "<nic><net/></nic>" * 49_000 + "</cpu></system>",
    '<system version="1"><cpu numaid="0"' + ' a="b"' * (1 << 20),
    '<system version="1">' + "x" * (10 << 20),
    "<system " * (1 << 20),
    '<system version="1"><cpu numaid="0">' + gpu("0001:00:00.0", 0) * 9_000 + "</cpu></system>",
)


@pytest.mark.parametrize("noise", sampled(NOISE, (2, 3)), ids=lambda noise: noise[20:60])
def test_ten_megabytes_take_little_memory(noise):
    tracemalloc.start()
    topology = read_or_none(noise)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert topology is None or len(topology.gpus) == 1, "the same GPU thousands of times is one GPU"
    assert peak < 64 << 20
