"""Which GPUs, and why not: every refusal says what to do."""

import pytest
from msgspec.structs import replace

from gpucheck.measure.planning.selection import Unmeasurable, admit, choose, room
from gpucheck.measure.values import MAX_REPEATS, adaptive, repeats_for, repeats_together, spread
from gpucheck.model import GpuProcess, Health, Verdict
from tests.machines import h100

GIB, MIB = 1 << 30, 1 << 20
GPUS = tuple(replace(h100(index), uuid=f"GPU-{index}a-b") for index in range(4))


def sick(gpu, **health):
    return replace(gpu, health=Health(**health))


def test_without_a_word_every_gpu_is_measured():
    assert choose(GPUS, None) == GPUS


@pytest.mark.parametrize(("words", "indices"), [("2,0", [2, 0]), ("GPU-1a-b, 3", [1, 3]), ("gpu-2a", [2])])
def test_numbers_and_uuids_choose_in_order(words, indices):
    assert [gpu.index for gpu in choose(GPUS, words)] == indices


def test_one_gpu_twice_on_purpose_copies_inside_it():
    assert [gpu.index for gpu in choose(GPUS, "1,1")] == [1]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("0,1,0", "device-named-twice"),
        ("0,GPU-0a-b", "device-named-twice"),
        ("0,8", "device-not-there"),
        ("GPU-9", "device-not-there"),
        ("GPU-", "device-ambiguous"),
        ("", "device-not-there"),
        ("-1", "device-not-there"),
    ],
)
def test_what_names_no_gpu_is_refused_with_what_there_is(words, code):
    with pytest.raises(Unmeasurable) as refused:
        choose(GPUS, words)

    assert (refused.value.finding.code, refused.value.usage) == (f"measure.{code}", True)
    assert str(refused.value).startswith("--devices")


def test_mig_is_a_skip_with_its_cause():
    with pytest.raises(Unmeasurable) as refused:
        admit([sick(GPUS[0], mig=True), GPUS[1]], contended=False)

    finding = refused.value.finding
    assert (finding.verdict, finding.cause, finding.subject) == (Verdict.SKIP, "mig-enabled", "gpu:0000:1b:00.0")
    assert (finding.code, finding.seen) == ("measure.mig-on", "GPU 0: MIG is on")


JOB = GpuProcess(pid=4711, kind="compute", name="python")
DESKTOP = GpuProcess(pid=1, kind="graphics", name="Xorg")
MPS = GpuProcess(pid=7, kind="compute", name="/usr/bin/nvidia-cuda-mps-server")


@pytest.mark.parametrize("idle", [(), (DESKTOP,), (MPS,)])
def test_a_desktop_or_an_mps_server_without_a_client_is_no_other_user(idle):
    assert admit([sick(GPUS[0], processes=idle)], contended=False) == ""


@pytest.mark.parametrize(
    ("health", "words"),
    [
        ({"processes": (JOB,)}, r"process 4711 \(python\).*--allow-busy-gpus"),
        ({"processes": (MPS, JOB)}, r"in use by process 4711 \(python\):"),
        ({"compute_mode": "prohibited"}, "compute mode is prohibited"),
    ],
)
def test_a_gpu_that_others_use_or_nobody_may_is_refused(health, words):
    with pytest.raises(Unmeasurable, match=words):
        admit([GPUS[1], sick(GPUS[0], **health)], contended=False)


def test_a_busy_gpu_is_measured_where_that_is_wanted():
    assert admit([sick(GPUS[0], processes=(JOB,))], contended=True).startswith("contended: process 4711")


def full(free):
    return replace(sick(GPUS[0], memory_used_bytes=80 * GIB - free), memory_bytes=80 * GIB)


def test_buffers_shrink_to_the_fullest_gpu_and_say_so():
    size, note = room([full(40 * GIB), full(1 * GIB)], 256 * MIB)

    assert size == 128 * MIB
    assert note == "buffers shrunk from 256 to 128 MiB: GPU 0 has 1024 MiB free"
    assert room([full(40 * GIB)], 256 * MIB) == (256 * MIB, None)


def test_no_room_at_all_is_refused():
    with pytest.raises(Unmeasurable, match="700 MiB free"):
        room([full(700 * MIB)], 256 * MIB)


def test_memory_that_nvml_does_not_tell_is_tried():
    assert room([GPUS[0]], 256 * MIB) == (256 * MIB, None)


def test_spread_is_median_and_median_deviation():
    found = spread([1.0, 2.0, 3.0, 4.0, 100.0])

    assert (found.median, found.mad, found.least, found.greatest, found.samples) == (3.0, 1.0, 1.0, 100.0, 5)


@pytest.mark.parametrize("samples", [[], [0.0, 1.0], [1.0, -1.0]])
def test_a_time_that_cannot_be_is_refused(samples):
    with pytest.raises(ValueError, match=r"no sample|events were not"):
        spread(samples)


def test_a_sample_lasts_long_enough_and_fits_the_queue():
    assert repeats_for(0.001) == 13
    assert repeats_for(0.1) == 1
    assert repeats_for(1e-9) == MAX_REPEATS


def test_flows_copy_as_often_as_each_needs_and_equally_often_if_nearly_alike():
    """2.49 and 2.51 ms alone would be six copies and five: for a sixth of the time only one of them would run."""
    assert (repeats_for(0.00249), repeats_for(0.00251)) == (6, 5)
    assert repeats_together([0.00249, 0.00251]) == (6, 6)
    assert repeats_together([0.0025, 0.0125]) == (5, 1)


def test_steady_flows_stop_at_the_least():
    assert [len(column) for column in adaptive(lambda: (1.0, 2.0), 7, 21)] == [7, 7]


def test_one_unsteady_flow_keeps_all_sampling_to_the_most():
    """Its partner's samples stay comparable: they ran together."""
    times = iter([1.0, 1.5, 2.0] * 20)

    assert [len(column) for column in adaptive(lambda: (1.0, next(times)), 7, 21)] == [21, 21]
