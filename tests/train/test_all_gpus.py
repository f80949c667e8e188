"""Training on every GPU: how many ranks, what is repeated with NVLS, and when the clock starts."""

from unittest.mock import MagicMock

import pytest
from msgspec.structs import replace

from gpucheck.model import Simulation, Verdict
from gpucheck.model.smoke import Repeat, SmokeFailure
from gpucheck.processes.ranks.nccl_log import Taken
from gpucheck.run.steps.train import evaluated
from gpucheck.train.progress import RankDevice, RankReport
from gpucheck.train.results.merge import merge, performance
from gpucheck.train.run_plan import on_all_gpus, plan
from gpucheck.train.smoke import gpus_to_train_on, has_switch, rank_environment
from gpucheck.train.spec import SmokeOptions
from gpucheck.train.strategies import tensorflow_mirrored
from tests.fakes import facts
from tests.machines import h100, on_bus, p100, reading
from tests.train.conftest import Run
from tests.train.outcomes import ON_GPUS

RANK = RankReport(
    rank=0, world_size=2, model="mlp", backend="nccl", placement="gpus", placement_reason="", devices=(), data_hash="",
    losses=(2.0,) * 9 + (0.1,), seconds={}, samples=9, samples_seconds=1.0, versions={},
)  # fmt: skip
EIGHT = tuple(h100(index) for index in range(8))


def runs(gpus, *, strategy="all", nvls=False, **options):
    planned = plan("torch", strategy, SmokeOptions(**options), steps=None, capabilities=())
    return [(s.name, o.variant, o.world_size) for s, o in on_all_gpus(planned, gpus, nvls=nvls)]


@pytest.mark.parametrize("gpus", [3, 7, 8])
def test_strategies_with_one_rank_a_device_use_every_gpu(gpus):
    worlds = {name: world for name, _, world in runs(gpus)}

    assert (worlds["ddp"], worlds["fsdp"]) == (gpus, gpus)
    assert (worlds["dp"], worlds["model-parallel"], worlds["transfer"]) == (2, 2, 2)


@pytest.mark.parametrize(
    ("gpus", "nvls", "devices", "expected"),
    [
        *((gpus, False, None, [("ddp", "", 2)]) for gpus in (0, 1, 2)),
        (2, True, None, [("ddp", "", 2)]),
        (8, True, None, [("ddp", "", 8), ("ddp", "nvls", 8)]),
        (8, True, "0,1", [("ddp", "", 2)]),  # chosen devices are not exceeded
    ],
)
def test_switch_that_sums_has_a_run_on_all_gpus(gpus, nvls, devices, expected):
    assert runs(gpus, strategy="ddp", nvls=nvls, visible_devices=devices) == expected


def test_other_models_are_no_runs_of_nvls():
    planned = plan("torch", "ddp", SmokeOptions(model="gpt"), steps=None, capabilities=())
    named = [(strategy, replace(options, variant="gpt")) for strategy, options in planned]

    assert [(o.variant, o.world_size) for _, o in on_all_gpus(named, 8, nvls=True)] == [("gpt", 8)]


@pytest.mark.parametrize(("model", "batch"), [("mlp", 64), ("cnn", 16)])
def test_the_batch_of_all_ranks_is_one_that_the_model_learns_from(model, batch):
    planned = plan("torch", "ddp", SmokeOptions(model=model), steps=None, capabilities=())
    ((_, options),) = on_all_gpus(planned, 8, nvls=False)

    assert planned[0][1].batch_per_rank == 64
    assert options.batch_per_rank == batch


def host(gpus=EIGHT, **fields):
    return facts(nvml=reading(*gpus), pci=on_bus(*gpus), **fields)


@pytest.mark.parametrize(
    ("fields", "environment", "number"),
    [
        ({}, {}, 8),
        ({"python": {"torch": "2.13.0+cpu"}}, {}, 0),
        ({"simulation": Simulation(profile="hgx-h100-x8")}, {}, 0),
        ({}, {"CUDA_VISIBLE_DEVICES": "0,1,5"}, 3),
        ({}, {"CUDA_VISIBLE_DEVICES": ""}, 0),
    ],
)
def test_gpus_count_where_torch_will_find_them(monkeypatch, fields, environment, number):
    monkeypatch.setattr("os.environ", environment)
    assert gpus_to_train_on(host(**fields)) == number


def test_gpus_behind_switches_are_known_by_their_links():
    assert has_switch(host())
    assert not has_switch(host((p100(0), p100(1))))
    assert not has_switch(facts())


def test_bit_equality_is_asked_for_without_nvls_only():
    bits, _ = rank_environment({"NCCL_NVLS_ENABLE": "1"}, SmokeOptions())
    switch, _ = rank_environment({}, SmokeOptions(variant="nvls"))

    assert (bits["NCCL_NVLS_ENABLE"], switch["NCCL_NVLS_ENABLE"]) == ("0", "1")


def test_a_switch_may_round_otherwise_in_the_next_run():
    other = (Repeat(step=5, first="a", second="b"),) * 2
    summed = {"AllReduce": ("NVLS",)}
    bits, switch = (
        evaluated(replace(ON_GPUS, variant=variant, repeats=other, algorithms=summed)) for variant in ("", "nvls")
    )

    assert [finding.cause for finding in bits if finding.verdict is Verdict.FAIL] == ["data-corruption"]
    assert {finding.verdict for finding in switch} == {Verdict.PASS}
    assert any("gradients bit-equal" in str(finding.seen) for finding in switch), "ranks agree all the same"


@pytest.mark.parametrize(
    ("placement", "models", "ratio"),
    [("gpus", ("A100", "A100"), 2.0), ("shared-gpu", ("A100", "A100"), None), ("gpus", ("A100", "T4"), None)],
)
def test_ranks_that_share_a_gpu_or_have_other_models_have_no_straggler(placement, models, ratio):
    reports = [
        replace(
            RANK,
            rank=rank,
            placement=placement,
            compute_seconds=(seconds,) * 40,
            devices=(RankDevice(name=f"cuda:{rank}", model=models[rank]),),
        )
        for rank, seconds in enumerate((0.1, 0.2))
    ]

    assert performance(reports, 2).straggler_ratio == ratio


def test_the_speed_in_steps_and_the_digest_of_the_losses_are_kept():
    slow = replace(RANK, rank=1, samples_seconds=2.0)
    one, other = (merge((RANK, slow), SmokeOptions(steps=10, seed=seed), 3.0, (), Taken()) for seed in (1, 2))

    assert one.performance is not None
    assert one.performance.steps_per_s == 4.5
    assert one.loss_digest == other.loss_digest
    changed = merge(
        (replace(RANK, losses=(*RANK.losses[:-1], 0.100001)), slow), SmokeOptions(steps=10), 3.0, (), Taken()
    )
    assert changed.loss_digest != one.loss_digest


def test_the_clock_starts_after_the_first_step(run: Run):
    """The ranks import and start for longer than half a second here, and no fault is found in that."""
    outcome = run(timeout_s=0.5, start_s=60.0, stall_s=30.0, steps=1_000_000)

    assert isinstance(outcome, SmokeFailure)
    assert (outcome.kind, outcome.step is None or outcome.step > 1) == ("timeout", True)


def test_tensorflow_sees_only_the_gpus_that_take_part():
    """It raises "Memory growth cannot differ between GPU devices" for others that it sees."""
    tf = MagicMock(__version__="2.21")
    tf.config.list_physical_devices.return_value = [f"gpu{number}" for number in range(8)]
    where, devices = tensorflow_mirrored.place(tf, SmokeOptions(world_size=2))

    growing = [call.args[0] for call in tf.config.experimental.set_memory_growth.call_args_list]
    assert tf.config.set_visible_devices.call_args.args[0] == growing == ["gpu0", "gpu1"]
    assert (where.placement, [device.name for device in devices]) == ("gpus", ["GPU:0", "GPU:1"])
