"""A rank's computing on a GPU is timed by the GPU: on the host's clock it ends when the kernels are queued."""

from types import SimpleNamespace

import pytest

from gpucheck.train.progress import Progress
from gpucheck.train.spec import SmokeOptions
from gpucheck.train.torch.training import Averaging

torch = pytest.importorskip("torch")


class Device(str):
    """A GPU to the averaging, and a place that exists to torch."""

    type = "cuda"


class Event:
    """The GPU's clock: every record is 7 ms after the one before."""

    now = 0

    def __init__(self, *, enable_timing):
        assert enable_timing

    def record(self):
        Event.now += 7
        self.at = Event.now

    def elapsed_time(self, later):
        return later.at - self.at


class Torch:
    """torch with the events of a GPU, and an all-reduce of one rank."""

    cuda = SimpleNamespace(Event=Event)

    def __init__(self):
        future = torch.futures.Future()
        future.set_result([torch.ones(4)])
        work = SimpleNamespace(get_future=lambda: future)
        self.distributed = SimpleNamespace(all_reduce=lambda share, async_op: work)

    def __getattr__(self, name):
        return getattr(torch, name)


def averaging(device):
    rank = SimpleNamespace(
        torch=Torch(), spec=SimpleNamespace(processes=2, rank=0), device=device, options=SmokeOptions()
    )
    return Averaging(rank, Progress(SimpleNamespace(send=lambda *_: None)))


def bucket(number, *, last):
    return SimpleNamespace(buffer=lambda: torch.ones(4), index=lambda: number, is_last=lambda: last)


@pytest.mark.parametrize(("device", "seconds"), [(Device("cpu"), 0.007), (torch.device("cpu"), None)])
def test_the_backward_pass_ends_where_its_last_gradients_are_computed(device, seconds):
    hook = averaging(device)
    for step in (1, 2):
        hook.begin(step)
        hook.begin_backward()
        hook.average(bucket(0, last=False))
        hook.average(bucket(1, last=True))

        assert hook.backward_seconds() == seconds
