"""The training steps of a run. torch is imported when a step runs, in the children that train."""

import msgspec

from gpucheck.model import Host
from gpucheck.run._step import Outcome, Step


def training_steps() -> tuple[Step, ...]:
    """One step a training strategy."""
    return (Step("smoke-ddp", frozenset({"training", "measure"}), _smoke_ddp),)


def _smoke_ddp(host: Host) -> Outcome:
    from gpucheck import train

    result = train.run_ddp()
    return Outcome(train.judge(result, gpus=train.real_gpus(host)), msgspec.to_builtins(result))
