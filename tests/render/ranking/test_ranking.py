"""What a diagnosis weighed, as text: groups that read as one row, 80 columns, and the words of a probability."""

import math

import click
import pytest
from msgspec.structs import replace

from gpucheck.model.diagnosis.ranking import Explanation, Judgement, Predicted
from gpucheck.model.finding import Alternative
from gpucheck.render.findings import text as findings
from gpucheck.render.ranking import predicted
from gpucheck.render.ranking import text as ranking
from gpucheck.render.ranking.html import Axis, view
from gpucheck.render.ranking.pairs import LONGEST, describe
from tests.render.judgements import ALL, bus_id, even, explained, finding, healthy, narrow, rack, several, winner


def shown(judgement, **options):
    return click.unstyle(ranking.to_text(judgement, **options))


def text_of(*some):
    return click.unstyle("\n".join(findings.blocks(some)))


def rows(judgement, place=0):
    return [(row.where, row.fit) for block in predicted.blocks(judgement.ranking[place]) for row in block.rows]


def numbers(pairs, quantity="p2p-one-way", **fields):
    told = {"measured": 10.0, "low": 9.0, "middle": 10.0, "high": 11.0, "basis": "", **fields}
    return [Predicted(quantity=quantity, a=a, b=b, **told) for a, b in pairs]


def both_ways(pairs):
    return [way for a, b in pairs for way in ((a, b), (b, a))]


def ring(count):
    return [(a, b) for a in range(count) for b in range(a)]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("everything", [False, True])
def test_no_line_is_wider_than_80_columns(name, everything):
    text = shown(ALL[name](), everything=everything)

    assert max(map(len, text.split("\n"))) <= 80
    assert text


def test_long_words_and_many_causes_are_wrapped_and_counted():
    causes = tuple(("nvlink-down", f"link:{bus_id(gpu)}/3") for gpu in range(8))
    one = Explanation(causes=causes, probability=0.5, words="a link is down " * 20, readings=("as read " * 30,))
    text = shown(Judgement(findings=(), ranking=(one,), gpus=(bus_id(0),), decided="because " * 30))

    assert max(map(len, text.split("\n"))) <= 80
    assert "nvlink-down: GPU 0 (0000:10:00.0) NVLink 3" in text
    assert "and 4 more" in text


def test_without_a_ranking_there_is_no_section():
    assert shown(Judgement(findings=())) == ""
    assert view(Judgement(findings=())) is None


def test_without_a_number_and_a_reading_there_is_nothing_to_rank():
    bare = replace(winner(), ranking=tuple(replace(one, predictions=(), readings=()) for one in winner().ranking))

    assert shown(bare) == ""
    assert view(bare) is None


def test_the_ranking_names_causes_and_the_deciding_number():
    text = shown(winner())

    assert "  1        92 %  the PCIe link of GPU 3 has 8 of 16 lanes" in text
    assert "pcie-width-reduced: GPU 3 (0000:13:00.0)" in text
    assert "under 1 %" not in text
    assert "under 1 %  GPU 3 is throttled" in shown(winner(), everything=True)
    assert text.index("decided   copies between GPU 0-2") > text.index("If explanation 2 holds")
    assert "no fault" in shown(healthy())


def test_the_winner_fits_and_the_runner_up_does_not():
    assert rows(winner()) == [("all but pairs with GPU 3", "yes"), ("all pairs with GPU 3", "yes")] * 2
    assert rows(winner(), 1)[:2] == [("0-4, 0-5 and 10 more", "no, higher"), ("0-3, 1-3, 2-3", "no, lower")]


def test_72_gpus_are_as_few_rows_as_8():
    """5112 numbers."""
    assert rows(rack()) == [("all but pairs with GPU 17,40", "yes"), ("all pairs with GPU 17,40", "yes")]
    assert len(shown(rack()).split("\n")) < 30


def test_only_the_first_two_show_what_they_predicted_unless_all_are_asked_for():
    third = replace(winner().ranking[1], words="a third one")
    judgement = replace(winner(), ranking=(*winner().ranking[:2], third))

    assert "If explanation 3" not in shown(judgement)
    assert "If explanation 3 holds: a third one" in shown(judgement, everything=True)


def test_a_basis_is_told_once_for_the_rows_below_it():
    assert shown(rack()).count("18 NVLinks x 50 GB/s x 0.91") == 3  # "9 of 18 NVLinks" is one of them


def test_predictions_that_all_differ_are_merged_until_they_are_few_rows():
    real = {pair: 10 + number / 7 for number, pair in enumerate(ring(16))}

    def rate(a, b):
        return real[max(a, b), min(a, b)], f"the way of {a} and {b}"

    blocks = predicted.blocks(explained((), 0.9, "", 16, rate, rate))

    assert len(blocks[0].rows) <= predicted.ROWS
    assert sum(len(row.values) for row in blocks[0].rows) == 240


@pytest.mark.parametrize(
    ("measured", "fit"),
    [(10.0, "yes"), (8.9, "nearly"), (8.0, "no, lower"), (12.0, "nearly"), (12.2, "no, higher"), (0.0, "no, lower")],
)
def test_how_well_a_number_fits(measured, fit):
    """As far out of the range again, in proportion, as its end is from the middle may still be noise."""
    one = Explanation(causes=(), probability=1.0, words="", predictions=tuple(numbers([(0, 1)], measured=measured)))

    assert predicted.blocks(one)[0].rows[0].fit == fit


@pytest.mark.parametrize(
    ("pairs", "known", "text"),
    [
        ([(0, 1)], [(0, 1)], "0-1"),
        (ring(8), ring(8), "all 28 pairs"),
        ([(a, b) for a, b in ring(8) if 3 in (a, b)], ring(8), "all pairs with GPU 3"),
        ([(a, b) for a, b in ring(8) if {3, 5} & {a, b}], ring(8), "all pairs with GPU 3,5"),
        ([(a, b) for a, b in ring(8) if 3 not in (a, b)], ring(8), "all but pairs with GPU 3"),
        ([(a, b) for a, b in ring(8) if a // 4 == b // 4], ring(8), "within GPU 0-3, within GPU 4-7"),
        ([(a, b) for a, b in ring(8) if a // 4 != b // 4], ring(8), "between GPU 0-3 and GPU 4-7"),
        ([(a, b) for a, b in ring(72) if a // 8 == b // 8], ring(72), "within 9 groups of 8"),
        ([(a, b) for a, b in ring(72) if a // 8 != b // 8], ring(72), "between 9 groups of 8"),
        ([(0, 1), (1, 2), (5, 6)], ring(8), "0-1, 1-2, 5-6"),
        ([(0, 1), (1, 2), (2, 3), (4, 5), (5, 6)], ring(8), "0-1, 1-2 and 3 more"),
    ],
)
def test_pairs_are_described_shortly(pairs, known, text):
    assert describe(numbers(both_ways(pairs)), numbers(both_ways(known))) == text
    assert describe(numbers(pairs, "p2p-both-ways"), numbers(known, "p2p-both-ways")) == text


@pytest.mark.parametrize(
    ("ways", "text"),
    [
        ([(0, 1)], "0 to 1"),
        ([(3, b) for b in (0, 1, 2)], "from GPU 3"),
        ([(a, 0) for a in (1, 2, 3)], "to GPU 0"),
        ([(0, 1), (0, 2), (3, 1)], "0 to 1, 0 to 2, 3 to 1"),
        ([(0, 1), (0, 2), (3, 1), (3, 2)], "0 to 1, 0 to 2 and 2 more"),
    ],
)
def test_one_direction_is_named_as_one(ways, text):
    assert describe(numbers(ways), numbers(both_ways(ring(4)))) == text


@pytest.mark.parametrize(
    ("quantity", "gpus", "known", "text"),
    [
        ("host-copy", [0, 1, 2], range(8), "GPU 0-2"),
        ("host-copy", range(8), range(8), "all 8 GPUs"),
        ("host-copy", range(0, 72, 2), range(72), "36 of 72 GPUs"),
        ("collective", [0], [0], "1 run"),
        ("flows", [0, 0], [0, 0], "2 sets of copies"),
    ],
)
def test_numbers_of_one_gpu_or_of_all(quantity, gpus, known, text):
    group, everything = (numbers([(gpu, None) for gpu in some], quantity) for some in (gpus, known))

    assert describe(group, everything) == text


def test_any_group_of_pairs_fits_its_column():
    known = both_ways(ring(72))
    for step in range(1, 12):
        assert len(describe(numbers(known[step::step]), numbers(known))) <= LONGEST + 8


@pytest.mark.parametrize(
    ("probability", "text"),
    [(0.0, "under 1 %"), (0.004, "under 1 %"), (0.01, "1 %"), (0.92, "92 %"), (0.994, "99 %"), (0.9999, "over 99 %")],
)
def test_a_probability_is_never_told_as_0_or_100(probability, text):
    assert predicted.percent(probability) == text


def test_a_finding_shows_its_probability_and_few_alternatives():
    many = tuple(
        Alternative(cause=cause, probability=p, would_show=f"look at {cause}")
        for cause, p in (("a", 0.019), ("b", 0.03), ("c", 0.05), ("d", 0.04), ("e", 0.1))
    )
    text = text_of(finding(alternatives=many))

    assert "cause     pcie-width-reduced (92 %)" in text
    assert [line.split()[1] for line in text.split("\n") if line.startswith("        or ")] == ["e", "c", "d"]
    assert "or        e (10 %): look at e" in text


def test_certain_stays_a_word_and_what_was_not_weighed_keeps_its_own():
    assert "(certain)" in text_of(finding(confidence="certain", probability=1.0, alternatives=()))
    assert "(possible)" in text_of(finding(confidence=None, probability=None, alternatives=()))
    assert "(likely)" in text_of(finding(probability=None, alternatives=()))


def test_findings_of_several_gpus_in_one_block_show_the_range_and_no_bus_id_of_one():
    pair = [
        finding(
            subject=f"gpu:{bus_id(gpu)}",
            gpu_index=gpu,
            probability=p,
            why="slow",
            fix="reseat it",
            evidence=(),
            alternatives=(Alternative(cause="throttled", probability=1 - p, would_show=f"lspci -s {bus_id(gpu)}"),),
        )
        for gpu, p in ((1, 0.9), (6, 0.71))
    ]
    text = text_of(*pair)

    assert text.count("FAIL") == 1
    assert "pcie-width-reduced (71 to 90 %)" in text
    assert "or        throttled (29 %): lspci -s BUS_ID" in text


@pytest.mark.parametrize(
    "values",
    [[0.0], [5.0, 5.0], [-1.0, 3.0], [0.001, 900.0], [1e308, 1.0], [math.inf, 2.0], [math.nan], [2.9, 38.0], []],
)
def test_an_axis_holds_any_number(values):
    axis = Axis(values)

    assert all(0 <= axis.at(value) <= 100 for value in values if not math.isnan(value))
    assert all(-1e-9 <= axis.at(line) <= 100 + 1e-9 for line in axis.ticks(8))
    assert len(axis.ticks(8)) <= 10


def test_charts_of_one_quantity_share_their_scale_and_marks_are_bounded():
    first, second = view(rack()).stories

    assert [chart.axis for chart in first.charts] == [chart.axis for chart in second.charts]
    assert max(len(row.marks) for story in (first, second) for chart in story.charts for row in chart.rows) < 500
    assert "logarithmic" in view(several()).stories[0].charts[1].scale
    assert [row.fit for row in second.charts[0].rows] == ["bad", "good"]


def test_a_value_just_outside_speaks_no_louder_than_one_inside():
    story = view(replace(winner(), ranking=(explained((), 0.9, "", 8, even, narrow()),))).stories[0]

    assert {mark.kind for mark in story.charts[0].rows[0].marks} <= {"inside", "just"}


@pytest.mark.parametrize(("probability", "is_open"), [(0.4, True), (0.004, False)])
def test_an_improbable_second_explanation_is_folded(probability, is_open):
    first, second, *_ = winner().ranking
    weighed = replace(winner(), ranking=(first, replace(second, probability=probability)))

    assert [story.is_open for story in view(weighed).stories] == [True, is_open]
