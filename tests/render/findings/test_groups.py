"""One cause is one block: findings that differ only by their GPU are grouped, and their remedy fits all of them."""

import click
import msgspec
import pytest
from msgspec.structs import replace

from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Verdict
from gpucheck.render.findings import group_equal
from gpucheck.render.words import number, observed, plural, value
from tests.render.views import lines_of

BUS = tuple(f"0000:{n:02x}:00.0" for n in range(0x10, 0x20))


def finding(n, verdict=Verdict.WARN, *, percent=75, **fields):
    """One GPU with a lowered power limit."""
    gpu = Subject(check="power-limit", name=f"gpu:{BUS[n]}", unit="W", evidence=(f"limit of {BUS[n]}: 300 W",))
    made = gpu.finding(verdict, "gpu.power-limit-lowered", 300.0, 700.0, percent=percent, default_w=700.0)
    return replace(made, gpu_index=n, **fields)


def lines(findings, gpus=BUS, **options):
    return [click.unstyle(line) for line in lines_of(findings, gpus, **options)]


def test_the_same_on_all_gpus_is_one_block_without_any_bus_id():
    found = lines([finding(n) for n in range(16)])

    assert found[0] == "WARN    power-limit  all 16 GPUs: 300 W, expected 700 W"
    assert "                    sudo nvidia-smi -pl 700" in "\n".join(found).split("\n")


def test_some_gpus_are_listed_in_the_headline_and_in_the_command():
    found = lines([finding(2), finding(5)])

    assert found[0] == f"WARN    power-limit  GPU 2 ({BUS[2]}), GPU 5 ({BUS[5]}): 300 W, expected 700 W"
    assert f"nvidia-smi -i {BUS[2]},{BUS[5]} -pl 700" in found[2]


def test_one_gpu_is_named_in_its_command():
    assert f"nvidia-smi -i {BUS[2]} -pl 700" in lines([finding(2)])[2]


@pytest.mark.parametrize(
    ("which", "words"),
    [
        (range(16), "all 16 GPUs"),
        ([n for n in range(16) if n != 3], f"15 of 16 GPUs (all but {BUS[3]})"),
        (range(10), "GPU 0-9"),
        ([0, 1, 2, 3, 4, 6, 7, 8, 10, 12], "GPU 0-4,6-8,10,12"),
    ],
)
def test_many_gpus_are_named_briefly(which, words):
    (group,) = group_equal([finding(n) for n in which], BUS)

    assert group.where == words


def test_two_of_two_are_both_and_one_of_one_is_itself():
    assert group_equal([finding(0), finding(1)], BUS[:2])[0].where == "both GPUs"
    assert group_equal([finding(0)], BUS[:1])[0].where == f"GPU 0 ({BUS[0]})"


def test_all_pairs_are_one_block():
    pairs = [
        Finding(check="x", verdict=Verdict.FAIL, subject=f"pair:{BUS[a]}-{BUS[b]}", seen="CNS", why="w", fix="f")
        for a in range(4)
        for b in range(a + 1, 4)
    ]

    assert group_equal(pairs, BUS[:4])[0].where == "all 6 GPU pairs"
    assert group_equal(pairs[:2], BUS[:4])[0].where == f"GPU {BUS[0]} - GPU {BUS[1]}, GPU {BUS[0]} - GPU {BUS[2]}"


@pytest.mark.parametrize(
    "other",
    [
        *({"seen": 200.0}, {"cause": "x"}, {"code": "gpu.other-code"}, {"percent": 76}, {"unit": "kW"}),
        *({"action": "replace"}, {"owner": "site"}),
    ],
)
def test_what_differs_is_not_grouped(other):
    assert len(group_equal([finding(0), finding(1, **other)], BUS)) == 2


def test_values_that_python_takes_for_equal_are_not():
    """8, 8.0 and True."""
    assert len(group_equal([finding(0, seen=1), finding(1, seen=True)], BUS)) == 2


def test_texts_are_compared_only_without_a_code():
    """A report of another version may have findings without codes."""
    assert len(group_equal([finding(0), finding(1, why="else", fix="else")], BUS)) == 1
    assert len(group_equal([finding(0, code=None), finding(1, code=None, why="else")], BUS)) == 2


def test_evidence_is_cut_and_verbose_shows_all():
    many = [finding(n, evidence=(f"{n * 7} W", "same")) for n in range(16)]

    assert [line for line in lines(many) if "evidence" in line][-1].endswith("and 5 more lines")
    assert len([line for line in lines(many, verbose=True) if "evidence" in line]) == 17


def test_every_line_of_a_remedy_stands_below_the_first():
    text = "\n".join(lines([finding(0, fix="one\ntwo", steps=(), why="w", seen="a\nFAIL    b")]))

    assert "        fix       one\n                  two\n" in text
    assert "\nFAIL" not in text


def test_the_root_cause_comes_first_and_what_follows_is_one_line():
    follows = [
        Finding(check=name, verdict=Verdict.UNKNOWN, subject="host", because_of="driver", why="no NVML", fix="f")
        for name in ("numa", "bar1")
    ]
    root = Finding(check="driver", verdict=Verdict.UNKNOWN, subject="host", seen="no driver", why="w", fix="f")
    other = msgspec.structs.replace(root, check="loader", why="other")

    assert [line for line in lines([*follows, other, root]) if not line.startswith(" ")] == [
        "UNKNOWN driver  no driver",
        "UNKNOWN 2 checks not run because of this: bar1, numa",
        "UNKNOWN loader  no driver",
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"seen": 17, "wanted": 18, "unit": "NVLinks active"}, "17 NVLinks active, expected 18"),
        ({"seen": 1, "wanted": 2, "unit": "processes"}, "1 process, expected 2"),
        ({"seen": 300.0, "wanted": 700.0, "unit": "W"}, "300 W, expected 700 W"),
        ({"seen": 9.03, "wanted": 18.9, "unit": "GB/s"}, "9.03 GB/s, expected 18.9 GB/s"),
        ({"seen": None, "wanted": "x"}, "the reason"),
        ({"seen": False, "wanted": True}, "no, expected yes"),
        ({"seen": "off", "wanted": None}, "off"),
    ],
)
def test_the_first_line_says_what_is_wrong_without_python(fields, words):
    made = Finding(check="x", verdict=Verdict.FAIL, subject="host", why="the reason", fix="f", **fields)

    assert observed(made) == words


def test_what_passes_or_is_skipped_was_not_expected_to_be_otherwise():
    for verdict in (Verdict.PASS, Verdict.SKIP):
        made = Finding(check="x", verdict=verdict, subject="host", seen=5, wanted=9, why="w")
        assert observed(made) == "5"


def test_numbers_are_readable():
    numbers = (135533568, 30359519232.0, 2062, 9999, 10000, 0.25, 371.23, 1234567.8, float("inf"))

    assert [number(n) for n in numbers] == [
        *("135,533,568", "30,359,519,232", "2062", "9999", "10,000", "0.25", "371.23", "1,234,568", "inf"),
    ]
    assert (plural(1, "pair"), plural(12000, "pair")) == ("1 pair", "12,000 pairs")
    assert value(finding(0), None) == "unknown"
