"""One bad part of a paste does not spoil the rest, and less text never gives a better verdict."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucheck import imports
from gpucheck.model import Verdict
from gpucheck.model.diagnosis import Diagnosis
from gpucheck.model.paste import Reading
from gpucheck.run.pastes import diagnosis
from tests.diagnose.cases import NAMES, case
from tests.imports.corpus import CASES as TOPOLOGIES
from tests.imports.corpus import raw
from tests.imports.pastes.reading import BANDWIDTH, CASES
from tests.shared import sampled

XID = "[  120.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n"
PERF = {name: list(texts.values()) for name in NAMES if (texts := case(name).get("pastes"))}
TEXTS = [
    *(one["raw"] for one in CASES.values()),
    *map(raw, TOPOLOGIES),
    *("\n\n".join(texts) for texts in PERF.values()),
]
# UNKNOWN without the part, PASS with it: what is left is the state of each GPU, which passes by itself.
# Of the second: a run on four of eight GPUs, without which nothing is left unproven. Of the third: a question that the
# port does not answer, and without which it was not asked.
STATE_ONLY = {("issue-nccl-199", 1), ("f-4090x8-pptest-patched", 0), ("f-4090x8-pptest-patched", 1)}
STATE_ONLY |= {("perfquery-on-roce", 0)}


def reading(text: str, source: str) -> Reading | None:
    try:
        return imports.read_all(text.encode(), source)
    except imports.ImportProblem:
        return None


def diagnosed(*texts: str) -> Diagnosis | None:
    readings = [one for i, text in enumerate(texts) if (one := reading(text, f"{i}.txt"))]
    return diagnosis(readings, sources=("x",)) if readings else None


def pieces(text: str) -> list[str]:
    """The lines of each part of a text."""
    lines = text.split("\n")
    found = []
    for part in imports.read_all(text.encode(), "x").parts:
        at = [i for one in part.ranges for i in range(one.first_line - 1, one.last_line)]
        found.append("\n".join(lines[i] for i in at))
    return found


MIXED = {name: texts for name, texts in PERF.items() if len(texts) > 1}
MIXED |= {name: found for name, one in CASES.items() if len(found := pieces(one["raw"])) > 1}


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A recorded text that lost a line, the end of a line, its columns, its head or its tail."""
    text = draw(st.sampled_from(TEXTS))
    lines = text.split("\n")
    at = draw(st.integers(0, len(lines) - 1))
    what = draw(st.sampled_from(("line", "end of line", "columns", "head", "tail", "characters")))
    if what == "line":
        del lines[at]
    elif what == "end of line":
        lines[at] = lines[at][: draw(st.integers(0, max(len(lines[at]), 1)))]
    elif what == "columns":
        width = draw(st.integers(1, 120))
        lines = [line[:width] for line in lines]
    elif what == "characters":
        lines = text[: draw(st.integers(0, len(text)))].split("\n")
    else:
        lines = lines[at:] if what == "head" else lines[:at]
    return "\n".join(lines)


@pytest.mark.parametrize("count", sampled((40, 400), (0,)))
def test_what_is_readable_is_judged_next_to_damaged_text(count):
    @settings(max_examples=count)
    @given(damaged())
    def check(text):
        found = diagnosed(f"{text}\n\n{XID}")

        assert found is not None, "exit 64 although a kernel message is readable"
        assert found.verdict is Verdict.FAIL

    check()


@pytest.mark.parametrize("name", sampled(MIXED, lambda number, _: number % 3 == 0))
def test_text_without_one_of_its_parts_never_passes_if_all_of_it_does_not(name):
    texts = MIXED[name]
    complete = diagnosed(*texts)
    assert complete is not None
    if complete.verdict is Verdict.PASS:
        return
    for i, dropped in enumerate(texts):
        rest, alone = diagnosed(*texts[:i], *texts[i + 1 :]), diagnosed(dropped)
        is_evidence = alone is not None and alone.verdict in (Verdict.WARN, Verdict.FAIL)
        if rest is not None and not is_evidence and (name, i) not in STATE_ONLY:
            assert rest.verdict is not Verdict.PASS, (i, complete.findings)


@pytest.mark.parametrize("name", sampled(sorted(PERF), lambda number, _: number % 12 == 0))
def test_text_without_one_of_its_lines_never_passes_if_all_of_it_does_not(name):
    """But for a line that is itself the evidence."""
    texts = PERF[name]
    complete = diagnosed(*texts)
    if complete is None or complete.verdict is Verdict.PASS:
        return
    for number, text in enumerate(texts):
        lines = text.split("\n")
        for at in range(0, len(lines), 1 + len(lines) // 40):
            without = "\n".join(lines[:at] + lines[at + 1 :])
            rest, alone = diagnosed(*texts[:number], without, *texts[number + 1 :]), diagnosed(lines[at])
            is_evidence = alone is not None and alone.verdict in (Verdict.WARN, Verdict.FAIL)
            if rest is not None and not is_evidence and (name, number) not in STATE_ONLY:
                assert rest.verdict is not Verdict.PASS, (number, at, lines[at], complete.findings)


NVB, P2P, NCCL = BANDWIDTH["nvbandwidth.txt"], BANDWIDTH["p2p-bandwidth-latency.txt"], BANDWIDTH["nccl-tests.txt"]


def about_paste(found: Diagnosis) -> list[tuple[str | None, str]]:
    assert all(one.verdict is Verdict.UNKNOWN for one in found.findings if one.check == "paste")
    return [(one.code, str(one.seen)) for one in found.findings if one.check == "paste"]


def test_damaged_table_is_a_finding_with_its_lines_and_the_others_are_judged():
    assert diagnosed(NVB).verdict is Verdict.PASS
    found = diagnosed(NVB.replace(" 1    396.40       N/A\n", " 1    396.4\n"))

    assert found.verdict is Verdict.UNKNOWN
    assert about_paste(found) == [("pastes.output-damaged", "0.txt lines 41-44: damaged or incomplete")]
    assert any("row 1" in line for one in found.findings for line in one.evidence)
    assert found.observations.measured.p2p_uni_gb_s == ((None, None), (396.10, None))


def test_second_run_with_other_numbers_is_a_contradiction_and_both_are_judged():
    slow = NVB.replace("396.", " 39.").replace("782.", " 78.").replace("390.", " 39.")
    for texts in ((NVB, slow), (slow, NVB)):
        found = diagnosed(*texts)

        rates = {one.verdict for one in found.findings if one.check == "p2p-bandwidth"}
        assert rates - {Verdict.PASS}, "the slow one is not hidden by the other"
        ((code, seen),) = about_paste(found)
        assert (code, seen[:5], "contradicts 0.txt" in seen) == ("pastes.values-differ", "1.txt", True)
        assert found.machines == ()


def test_run_repeated_with_a_little_noise_is_no_contradiction():
    assert about_paste(diagnosed(NVB, NVB.replace("396.40", "388.40"))) == []


LIST = "index, name, pci.bus_id, pcie.link.width.current, pcie.link.width.max\n" + "".join(
    f"{i}, NVIDIA A10, 00000000:{bus}:00.0, 16, 16\n" for i, bus in enumerate(("01", "17", "30", "A1"))
)


def test_run_on_some_of_the_gpus_is_placed_by_bus_id_and_named():
    found = diagnosed(LIST, P2P)

    assert found.gpus == 4
    assert found.observations.measured.p2p_uni_gb_s[0] == (None, 9.90, None, 9.91)
    assert [one.bus_id for one in found.observations.gpus] == [f"0000:{bus}:00.0" for bus in ("01", "17", "30", "a1")]
    assert [words for _, words in about_paste(found) if "3 of 4 GPUs" in words]


def test_gpus_in_another_order_are_matched_by_bus_id():
    swapped = P2P.replace("pciBusID: 1,", "pciBusID: ff,").replace("pciBusID: 17,", "pciBusID: 1,")
    swapped = swapped.replace("pciBusID: ff,", "pciBusID: 17,")
    three = "\n".join(line for line in LIST.split("\n") if ":30:" not in line).replace("3, NVIDIA", "2, NVIDIA")
    found = diagnosed(three, swapped)

    assert found.observations.gpus[0].bus_id == "0000:17:00.0"
    assert found.observations.measured.p2p_uni_gb_s[0][1] == 9.90
    assert [one.pcie.width for one in found.observations.gpus] == [16, 16, 16]


def test_collective_without_a_place_among_the_gpus_counts_with_its_ranks():
    matrix = next(raw(one) for one in TOPOLOGIES if one["id"] == "topo-h100x8-pix-sys-10nic")
    found = diagnosed(matrix, NCCL)

    assert (found.gpus, found.machines) == (8, ())
    assert found.observations.measured.collectives[0].ranks == 4
    assert [words for _, words in about_paste(found) if "4 of 8 GPUs" in words]


def test_list_of_gpus_alone_is_unknown():
    text = "GPU 0: NVIDIA A10 (UUID: GPU-d1b93026-6d5b-03bd-3a71-f85b47a61bde)\n"

    assert diagnosed(text).verdict is Verdict.UNKNOWN


def test_list_of_other_pci_devices_is_another_machine():
    other = "41:00.0 3D controller: NVIDIA Corporation GA102GL [A10] (rev a1)\n"
    found = diagnosed(P2P, other)

    assert [one.gpus for one in found.machines] == [3, 1]
    assert [words for _, words in about_paste(found) if "1.txt" in words]


def test_reading_without_parts_of_the_requested_machine_keeps_unnamed_ones():
    unnamed = imports.read_all(P2P.encode(), "p2p.txt")
    named = replace(imports.read_all(XID.encode(), "x.txt").parts[0], machine="node07")
    found = diagnosis([unnamed, replace(unnamed, parts=(named,))], sources=("x",), machine="node07.example.com")

    assert (found.machine, found.gpus, found.verdict) == ("node07", 3, Verdict.FAIL)
