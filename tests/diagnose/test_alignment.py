"""GPUs of several sources are matched by bus id, position or index, and never guessed."""

import pytest

from gpucheck.diagnose.combine import aligned
from gpucheck.model.diagnosis.observations import ObservedGpu


def gpus(*bus_ids: str | None, model: str | None = None) -> tuple[ObservedGpu, ...]:
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
    found = gpus(*source, model="T4")
    by_index = dict(zip(indexes, found, strict=True)) if indexes is not None else None
    expected = None if places is None else tuple(None if place is None else found[place] for place in places)

    assert aligned(gpus(*machine), found, by_index) == expected
