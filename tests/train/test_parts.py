"""The small pure parts: placement, environment, data, progress."""

import os
import subprocess
import sys
import time

import msgspec
import numpy as np
import pytest

from gpucheck.train import data
from gpucheck.train.progress import AFTER, BEFORE, START, STEP, Position, Progress, position_of
from gpucheck.train.smoke import rank_environment
from gpucheck.train.spec import SmokeOptions, plan


class Kept:
    """A sender that keeps the last position."""

    position = START

    def send(self, kind: str, value: Position) -> None:
        assert kind == "at"
        self.position = position_of(msgspec.json.encode(value))


@pytest.mark.parametrize(
    ("gpus", "cuda", "nccl", "placement", "backend", "devices"),
    [
        (0, None, False, "cpu", "gloo", ["cpu", "cpu"]),
        (0, "12.6", True, "cpu", "gloo", ["cpu", "cpu"]),
        (1, "12.6", True, "shared-gpu", "gloo", ["cuda:0", "cuda:0"]),
        (2, "12.6", True, "gpus", "nccl", ["cuda:0", "cuda:1"]),
        (8, "12.6", True, "gpus", "nccl", ["cuda:0", "cuda:1"]),
        (2, "12.6", False, "gpus", "gloo", ["cuda:0", "cuda:1"]),
    ],
)
def test_ranks_get_gpus_of_their_own_where_there_are_enough(gpus, cuda, nccl, placement, backend, devices):
    chosen = plan(2, visible_gpus=gpus, build_cuda=cuda, build="2.7.1", nccl=nccl)

    assert (chosen.placement, chosen.backend) == (placement, backend)
    assert [chosen.device(rank) for rank in range(2)] == devices


def test_a_cpu_build_is_not_reported_as_a_host_without_gpus():
    """The first is torch's doing and the second the host's: the remedy differs."""
    assert "build without CUDA" in plan(2, visible_gpus=0, build_cuda=None, build="2.13.0+cpu", nccl=False).reason
    assert "sees no CUDA device" in plan(2, visible_gpus=0, build_cuda="12.6", build="2.7.1", nccl=True).reason


def test_leftovers_of_jobs_do_not_reach_the_ranks_and_are_named():
    left = {"LOCAL_RANK": "3", "MASTER_ADDR": "node01", "MASTER_PORT": "29500", "NCCL_P2P_DISABLE": "1"}
    left |= {"TORCHELASTIC_RUN_ID": "x", "TORCH_NCCL_BLOCKING_WAIT": "1", "WORLD_SIZE": "8"}
    own = {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "1,0", "RANKED": "mine"}
    environment, removed = rank_environment(left | own | {"OMP_NUM_THREADS": "64"}, SmokeOptions())

    assert removed == tuple(f"{name}={value}" for name, value in left.items())
    assert own.items() <= environment.items()
    assert not left.keys() & environment.keys()
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["GLOO_SOCKET_IFNAME"] == "lo"


def test_the_data_has_mnists_shape_and_is_the_same_every_time():
    one, two, other = data.synthetic(7), data.synthetic(7), data.synthetic(8)

    assert one.images.shape == (data.TRAIN, 784)
    assert (one.images.dtype, one.labels.dtype) == (np.float32, np.int64)
    assert set(one.labels.tolist()) == set(range(10))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not np.array_equal(one.images, other.images)


def test_the_held_out_samples_are_not_among_those_trained_on():
    samples = data.synthetic(7)
    trained = {image.tobytes() for image in samples.images}

    assert not any(image.tobytes() in trained for image in samples.held_out_images)


def test_an_epoch_shows_each_sample_once_and_the_next_is_shuffled_anew():
    batches = data.order(seed=3, samples=70, size=16, steps=6)

    assert batches.shape == (6, 16)
    assert len(set(batches[:4].ravel())) == 64, "what does not fill a batch is left out"
    assert not np.array_equal(batches[4], batches[0])
    assert np.array_equal(data.order(seed=3, samples=70, size=16, steps=1)[0], batches[0])


@pytest.mark.parametrize("batch", [0, 65])
def test_a_batch_that_the_data_cannot_fill_is_refused(batch):
    with pytest.raises(ValueError, match="the data set has 64"):
        data.order(seed=3, samples=64, size=batch, steps=1)


def test_positions_sort_by_how_far_a_rank_has_come():
    road = [
        *(Position(phase=phase) for phase in BEFORE),
        *(Position(phase=phase, step=step) for step in (1, 2, 10) for phase in STEP),
        *(Position(phase=phase, step=3 if phase in ("reference", "repeat") else None) for phase in AFTER),
    ]
    orders = [position.order() for position in road]

    assert orders == sorted(orders)
    assert len(set(orders)) == len(orders)


def test_progress_is_sent_on_entering_a_phase_and_books_the_time():
    sender, seen = Kept(), []
    progress = Progress(sender, on_enter=lambda phase, step: seen.append((phase, step, sender.position.phase)))
    progress.on_device("cuda:1", "0000:af:00.0")
    progress.enter("forward", 12)
    progress.enter("data")

    position = sender.position
    assert (position.phase, position.step, position.device, position.bus_id) == ("data", None, "cuda:1", "0000:af:00.0")
    assert seen == [("forward", 12, "forward"), ("data", None, "data")], "a fault strikes when its phase is on record"
    assert set(progress.seconds) == {"start", "forward"}
    assert position.describe(40) == "data"


def test_waiting_for_a_cpu_that_others_have_is_kept_apart():
    """Two that compute on one CPU: each is ready half of the time and does not run."""
    cpus = os.sched_getaffinity(0)
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        for pid in (0, other.pid):
            os.sched_setaffinity(pid, {min(cpus)})
        progress = Progress(Kept())
        progress.enter("forward", 1)
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
        progress.enter("check", 1)
    finally:
        os.sched_setaffinity(0, cpus)
        other.kill()
        other.wait()

    assert 0.02 < progress.waited["forward"] < progress.seconds["forward"]


def test_what_is_booked_elsewhere_is_no_part_of_its_phase():
    progress = Progress(Kept())
    progress.enter("backward", 1)
    with progress.booked("check", "backward"):
        time.sleep(0.2)
    progress.enter("optimizer", 1)

    assert progress.seconds["check"] >= 0.2 > progress.seconds["backward"] >= 0
