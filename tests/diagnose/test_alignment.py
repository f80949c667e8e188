"""GPUs of several sources are matched by bus id, position or index, and never guessed."""

from gpucheck.diagnose.alignment import aligned
from gpucheck.model.diagnosis.observations import ObservedGpu


def gpus(*bus_ids: str | None, model: str | None = None) -> tuple[ObservedGpu, ...]:
    return tuple(ObservedGpu(bus_id=bus_id, model=model) for bus_id in bus_ids)


def test_bus_ids_outrank_positions():
    machine, found = gpus("0000:01:00.0", "0000:02:00.0"), gpus("0000:02:00.0", "0000:01:00.0", model="T4")

    assert aligned(machine, found) == (found[1], found[0])


def test_gpu_without_a_row_is_none():
    machine, found = gpus("0000:01:00.0", "0000:02:00.0"), gpus("0000:02:00.0", model="T4")

    assert aligned(machine, found) == (None, found[0])


def test_equal_numbers_match_by_position_if_a_bus_id_is_missing():
    machine, found = gpus(None, None), gpus("0000:02:00.0", "0000:01:00.0")

    assert aligned(machine, found) == found


def test_repeated_bus_id_identifies_no_gpu():
    machine, found = gpus("0000:01:00.0", "0000:02:00.0"), gpus("0000:01:00.0", "0000:01:00.0", model="T4")

    assert aligned(machine, found) == found


def test_fewer_gpus_match_by_the_printed_index():
    machine, found = gpus(None, None, None), gpus(None, model="T4")

    assert aligned(machine, found, {1: found[0]}) == (None, found[0], None)


def test_fewer_gpus_without_an_index_are_unknown():
    assert aligned(gpus(None, None, None), gpus(None, model="T4")) is None


def test_more_gpus_than_the_machine_has_are_unknown():
    found = gpus(None, None, None)

    assert aligned(gpus(None, None), found, dict(enumerate(found))) is None
