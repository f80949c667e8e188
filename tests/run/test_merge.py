"""Parts of several tools become one machine: which GPU a part describes, and which parts are of another host."""

import pytest

from gpucheck import imports
from gpucheck.model.diagnosis.observations import Measured, Observations, ObservedGpu
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part
from gpucheck.run.pastes.merge import aligned, bus_ids_by_index, merge, merged
from tests.imports.pastes.samples import MATRIX

HEADER = "index, name, pci.bus_id, pcie.link.width.current, pcie.link.width.max\n"
ROW = "{0}, NVIDIA L40S, 00000000:{1}:00.0, {2}, 16\n"
TABLE_ROW = (
    "|   {0}  NVIDIA L40S                    On  | 00000000:{1}:00.0 Off |                    0 |\n"
    "| N/A   40C    P0              60W / 350W |    100MiB / 46068MiB |      0%      Default |\n"
)


def parts(*texts: str) -> list[Part]:
    return [part for text in texts for part in imports.read_all(text.encode(), "paste.txt").parts]


def stated(given: Observations | None) -> list[Part]:
    """What the user observed."""
    return [] if given is None else [Part(facts=Facts(observed=given))]


def gpus(*texts: str, given: Observations | None = None) -> tuple[ObservedGpu, ...]:
    return merged([*stated(given), *parts(*texts)]).facts.observed.gpus


def test_listing_of_one_gpu_takes_its_own_place():
    found = gpus(MATRIX, TABLE_ROW.format(2, "41"))

    assert [gpu.bus_id for gpu in found] == [None, None, "0000:41:00.0", None]


def test_listing_in_another_order_is_matched_by_bus_id():
    rows = [ROW.format(0, "01", 16), ROW.format(1, "41", 8)]
    given = Observations(gpus=(ObservedGpu(bus_id="0000:41:00.0"), ObservedGpu(bus_id="0000:01:00.0")))

    assert [gpu.pcie.width for gpu in gpus(HEADER + "".join(rows), given=given)] == [8, 16]


def test_listing_with_other_bus_ids_is_another_machine():
    given = Observations(gpus=(ObservedGpu(bus_id="0000:41:00.0"), ObservedGpu(bus_id="0000:42:00.0")))

    found = merged([*stated(given), *parts(HEADER + ROW.format(0, "01", 16))])

    assert found.facts.observed == given
    assert [one.facts.observed.gpus[0].bus_id for one in found.others] == ["0000:01:00.0"]
    assert [(one.code, "other bus ids" in one.evidence[0]) for one in found.split] == [("pastes.other-machine", True)]


def test_bus_ids_by_index_come_from_the_longest_listing():
    long = TABLE_ROW.format(0, "01") + TABLE_ROW.format(1, "41")

    assert bus_ids_by_index(parts(TABLE_ROW.format(0, "99"), long)) == {0: "0000:01:00.0", 1: "0000:41:00.0"}


def test_compared_and_none_bad_stays_whatever_another_source_adds():
    right = Observations(measured=Measured(integrity_bad_pairs=()))

    for both, differing in (merge(right, Observations()), merge(Observations(), right)):
        assert (both.measured.integrity_bad_pairs, differing) == ((), ())


def named(*bus_ids: str | None, model: str | None = None) -> tuple[ObservedGpu, ...]:
    return tuple(ObservedGpu(bus_id=bus_id, model=model) for bus_id in bus_ids)


ONE, TWO = "0000:01:00.0", "0000:02:00.0"


@pytest.mark.parametrize(
    ("machine", "source", "indexes", "places"),
    [
        pytest.param((ONE, TWO), (TWO, ONE), None, (1, 0), id="bus ids outrank positions"),
        pytest.param((ONE, TWO), (TWO,), None, (None, 0), id="a GPU that the source does not list is None"),
        pytest.param((None, None), (TWO, ONE), None, (0, 1), id="equal numbers without bus ids match by position"),
        pytest.param((ONE, TWO), (ONE, ONE), None, (0, 1), id="a repeated bus id identifies no GPU"),
        pytest.param((None,) * 3, (None,), (1,), (None, 0, None), id="fewer GPUs match by the printed index"),
        pytest.param((None,) * 3, (None,), None, None, id="fewer GPUs without an index are unknown"),
        pytest.param((None,) * 2, (None,) * 3, (0, 1, 2), None, id="more GPUs than the machine has are unknown"),
    ],
)
def test_gpus_of_a_source_are_matched(machine, source, indexes, places):
    """indexes: as the source prints them. places: in the source, for each GPU of the machine."""
    found = named(*source, model="T4")
    by_index = dict(zip(indexes, found, strict=True)) if indexes is not None else None
    expected = None if places is None else tuple(None if place is None else found[place] for place in places)

    assert aligned(named(*machine), found, by_index) == expected
