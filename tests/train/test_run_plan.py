"""What is asked for becomes runs, or is refused before a process starts, with what would work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.processes.ranks.nodes import Nodes
from gpucheck.train.run_plan import plan, read_devices
from gpucheck.train.spec import PRECISIONS, SmokeOptions, unsupported
from gpucheck.train.strategies import all_strategies, choose

UUIDS = ("GPU-8d1b6a40-aaaa", "GPU-8d1b6a41-bbbb", "GPU-77777777-cccc")


@pytest.mark.parametrize(
    ("text", "visible", "number"),
    [
        (None, None, 2),
        ("0,2", "0,2", 2),
        ("2,0,1", "2,0,1", 3),
        ("0,0", "0", 2),
        ("GPU-8d1b6a41,GPU-7777", "1,2", 2),
        ("cpu,cpu,cpu", "", 3),
    ],
)
def test_devices_are_chosen_by_cuda_visible_read_devices(text, visible, number):
    assert read_devices(text, UUIDS) == (visible, number)


@pytest.mark.parametrize(
    ("text", "uuids", "words"),
    [
        ("0,3", UUIDS, "there is no device 3; this host has 3 GPUs, 0 to 2"),
        ("0,1", UUIDS[:1], "this host has 1 GPU, 0 to 0"),
        ("0,1", (), "this host has no GPU. Use --devices cpu,cpu"),
        ("cpu,0", UUIDS, "CPU ranks and GPUs cannot be combined"),
        ("GPU-8d1b,0", UUIDS, "there is no device GPU-8d1b"),
        ("0", UUIDS, "0,0 lets two ranks share it"),
        ("", UUIDS, "without a name"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_those_that_are(text, uuids, words):
    with pytest.raises(ValueError, match=words):
        read_devices(text, uuids)


def names(framework, strategy):
    return [(each.framework, each.name) for each in choose(framework, strategy)]


def test_every_framework_has_one_default_and_torch_comes_first():
    assert names("all", None) == [("torch", "ddp"), ("tensorflow", "mirrored"), ("cupy", "transfer")]
    assert names("torch", None) == [("torch", "ddp")]


def test_all_is_all_and_a_name_is_every_framework_that_has_it():
    assert set(names("all", "all")) == set(all_strategies())
    assert names("all", "transfer") == [("torch", "transfer"), ("cupy", "transfer")]


def test_a_strategy_that_a_framework_lacks_is_refused_with_those_it_has():
    with pytest.raises(
        LookupError, match=r"tensorflow has no strategy ddp; it has mirrored[.] ddp is a strategy of torch"
    ):
        choose("tensorflow", "ddp")


def planned(framework="torch", strategy=None, steps=None, capabilities=(), **options):
    return [o for _, o in plan(framework, strategy, SmokeOptions(**options), steps=steps, capabilities=capabilities)]


def test_steps_follow_the_model_and_the_data():
    assert planned()[0].steps == 40
    assert planned(data="/somewhere")[0].steps == 200
    assert planned(steps=10)[0].steps == 10


def test_limits_follow_the_precision():
    tolerances = [planned(precision=precision)[0].limits.parameter_tolerance for precision in PRECISIONS]
    assert tolerances == [1e-4, 5e-3, 4e-2, 1e-2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "cnn", "steps": 39}, "cnn needs 40 steps"),
        ({"steps": 9}, "mlp needs 10 steps"),
        ({"precision": "bf16", "capabilities": ("6.0",)}, "this GPU has 6.0: take fp32 or fp16"),
        ({"framework": "tensorflow", "model": "gpt"}, "tensorflow mirrored has cnn or mlp"),
        ({"framework": "tensorflow", "precision": "bf16"}, "tensorflow mirrored has fp32 or tf32"),
        ({"strategy": "dp", "nodes": Nodes(count=2, rank=0, host="a", port=1)}, "Use ddp or fsdp"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(options, words):
    with pytest.raises(ValueError, match=words):
        planned(**options)


@pytest.mark.parametrize(
    ("precision", "capability", "usable"),
    [
        ("fp32", "3.5", True),
        ("fp16", "6.0", True),
        ("bf16", "6.0", False),
        ("bf16", "7.5", False),
        ("tf32", "7.0", False),
        ("bf16", "8.0", True),
        ("tf32", "12.0", True),
        ("tf32", None, False),
        ("bf16", None, True),
    ],
)
def test_precisions_begin_with_their_hardware(precision, capability, usable):
    assert (unsupported(precision, capability) is None) is usable


@given(st.integers(3, 20), st.integers(0, 9), st.sampled_from(PRECISIONS))
def test_every_refusal_names_a_precision_that_is_accepted(major, minor, precision):
    capability = f"{major}.{minor}"
    problem = unsupported(precision, capability)
    if problem is not None:
        offered = problem.partition("take ")[2].split(" or ")
        assert offered
        assert all(unsupported(other, capability) is None for other in offered)
