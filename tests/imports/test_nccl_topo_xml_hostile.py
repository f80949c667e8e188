"""NCCL topology XML that is broken or hostile ends in one clear line."""

import pytest

from gpucheck.imports import ImportProblem, read
from gpucheck.model import Verdict
from tests.imports import nccl
from tests.imports.nccl import cpu, gpu, hgx, pci, system

BOMB = '<!DOCTYPE lolz [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;">]><system version="1"><cpu numaid="&b;"/></system>'
OUTSIDE = '<!DOCTYPE system SYSTEM "file:///etc/passwd"><system version="1"><cpu numaid="0"/></system>'


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
