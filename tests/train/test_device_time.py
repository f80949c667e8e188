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


def bucket(number, *, last):
    return SimpleNamespace(buffer=lambda: torch.ones(4), index=lambda: number, is_last=lambda: last)


@pytest.mark.parametrize(("device", "seconds"), [(Device("cpu"), 0.007), (torch.device("cpu"), None)])
def test_the_backward_pass_ends_where_its_last_gradients_are_computed(monkeypatch, device, seconds):
    future = torch.futures.Future()
    future.set_result([torch.ones(4)])
    work = SimpleNamespace(get_future=lambda: future)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda share, async_op: work)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    spec = SimpleNamespace(processes=2, rank=0)
    rank = SimpleNamespace(torch=torch, spec=spec, device=device, options=SmokeOptions())
    hook = Averaging(rank, Progress(SimpleNamespace(send=lambda *_: None)))
    for step in (1, 2):
        hook.begin(step)
        hook.mark()
        hook.average(bucket(0, last=False))
        hook.average(bucket(1, last=True))

        assert hook.backward_seconds() == seconds
