"""Parts of several tools become one machine: which GPU a part describes, and which parts are of another host."""

from gpucheck import imports
from gpucheck.model.diagnosis.observations import Observations, ObservedGpu
from gpucheck.model.diagnosis.paste import Part
from gpucheck.run.pastes.one_machine import bus_ids_by_index, merged
from tests.imports.pastes.samples import MATRIX

HEADER = "index, name, pci.bus_id, pcie.link.width.current, pcie.link.width.max\n"
ROW = "{0}, NVIDIA L40S, 00000000:{1}:00.0, {2}, 16\n"
TABLE_ROW = (
    "|   {0}  NVIDIA L40S                    On  | 00000000:{1}:00.0 Off |                    0 |\n"
    "| N/A   40C    P0              60W / 350W |    100MiB / 46068MiB |      0%      Default |\n"
)


def parts(*texts: str) -> list[Part]:
    return [part for text in texts for part in imports.read_all(text.encode(), "paste.txt").parts]


def gpus(*texts: str, given: Observations | None = None) -> tuple[ObservedGpu, ...]:
    return merged(parts(*texts), given or Observations()).seen.gpus


def test_listing_of_one_gpu_takes_its_own_place():
    found = gpus(MATRIX, TABLE_ROW.format(2, "41"))

    assert [gpu.bus_id for gpu in found] == [None, None, "0000:41:00.0", None]


def test_listing_in_another_order_is_matched_by_bus_id():
    rows = [ROW.format(0, "01", 16), ROW.format(1, "41", 8)]
    given = Observations(gpus=(ObservedGpu(bus_id="0000:41:00.0"), ObservedGpu(bus_id="0000:01:00.0")))

    assert [gpu.pcie.width for gpu in gpus(HEADER + "".join(rows), given=given)] == [8, 16]


def test_listing_with_other_bus_ids_is_another_machine():
    given = Observations(gpus=(ObservedGpu(bus_id="0000:41:00.0"), ObservedGpu(bus_id="0000:42:00.0")))

    found = merged(parts(HEADER + ROW.format(0, "01", 16)), given)

    assert found.seen == given
    assert [one.observations.gpus[0].bus_id for one in found.others] == ["0000:01:00.0"]
    assert [(one.code, "other bus ids" in one.evidence[0]) for one in found.split] == [("pastes.other-machine", True)]


def test_bus_ids_by_index_come_from_the_longest_listing():
    long = TABLE_ROW.format(0, "01") + TABLE_ROW.format(1, "41")

    assert bus_ids_by_index(parts(TABLE_ROW.format(0, "99"), long)) == {0: "0000:01:00.0", 1: "0000:41:00.0"}
