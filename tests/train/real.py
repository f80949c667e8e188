"""Real torch runs on CPU ranks, shared by the tests: one pair of processes for everything that needs two ranks, one
process for everything that needs one."""

import os
import pickle
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gpucheck.model.smoke import SmokeResult
from gpucheck.train.progress import RankReport
from gpucheck.train.results.merge import merge
from gpucheck.train.run_plan import plan
from gpucheck.train.smoke import rank_environment, train_in_ranks
from gpucheck.train.spec import SmokeOptions, TrainingFault
from gpucheck.train.strategies import all_strategies
from tests.shared import made_once
from tests.train.broken import FAULTS

ROOT = Path(__file__).parents[2]
# A machine with GPUs runs these on the CPU all the same: what is tested here is the test.
SHORT = SmokeOptions(steps=10, check_every=4, timeout_s=300, visible_devices="")


def planned(
    strategy: str = "ddp", *, steps: int = 10, fault: TrainingFault | None = None, **options: object
) -> SmokeOptions:
    changed = replace(SHORT, fault=fault, **options)
    ((_, chosen),) = plan("torch", strategy, changed, steps=steps, capabilities=())
    return chosen


TWO_RANKS = {
    "healthy": planned(),
    "flip-bit": planned(fault=TrainingFault(kind="flip-bit", step=6)),
    "slow": planned(fault=TrainingFault(kind="slow"), steps=40),
    **dict.fromkeys(FAULTS, planned()),
    "cnn": planned(model="cnn", steps=40),
    "gpt": planned(model="gpt"),
    "bf16": planned(precision="bf16"),
    "fp16": planned(precision="fp16"),
    "again": planned(),
    "fsdp": planned("fsdp"),
    "clean": planned(seed=100, steps=40),
}
ONE_PROCESS = {
    "dp": planned("dp"),
    "dp-three": planned("dp", world_size=3),
    "model-parallel": planned("model-parallel"),
    "model-parallel-gpt": planned("model-parallel", model="gpt", world_size=3),
    "transfer": planned("transfer"),
}


def run_all(many: dict[str, SmokeOptions], factory: pytest.TempPathFactory, processes: int) -> dict[str, SmokeResult]:
    """The result of each, from one start of the processes. They train once in a test run."""

    def train(folder: Path) -> None:
        (folder / "results").write_bytes(pickle.dumps(_results(many, folder, processes)))

    folder = made_once(factory, f"trained-{processes}", train)
    results: dict[str, SmokeResult] = pickle.loads((folder / "results").read_bytes())  # noqa: S301 - this run's own
    return results


def _results(many: dict[str, SmokeOptions], folder: Path, processes: int) -> dict[str, SmokeResult]:
    environment, removed = rank_environment(os.environ, SHORT)
    environment |= {"PYTHONPATH": str(ROOT), "MANY": msgspec.json.encode(many).decode(), "MANY_REPORTS": str(folder)}
    ending = train_in_ranks("tests.train.many:run", SHORT, environment, processes=processes)
    assert ending.reason == "finished", [(end.error, end.output) for end in ending.ranks]
    assert {options.strategy for options in many.values()} <= {name for _, name in all_strategies()}
    return {
        name: merge(
            tuple(
                msgspec.json.decode((folder / f"{name}-{rank}.json").read_bytes(), type=RankReport)
                for rank in range(processes)
            ),
            options,
            ending.seconds,
            removed,
            ending.taken,
        )
        for name, options in many.items()
    }
