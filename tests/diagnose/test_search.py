"""The search for explanations: one instance, two at once, and never two of which only one can hold."""

import json

from gpucheck.diagnose import read
from gpucheck.diagnose.hypotheses import all_hypotheses
from gpucheck.diagnose.instance import Change, Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.search import Ranked, Search
from gpucheck.model import Verdict
from tests.diagnose.faulty import FAULTS
from tests.diagnose.machines import Shape, healthy

RAW = 31.5


def four(*slow: int) -> Machine:
    """Four GPUs, each of the slow ones held to a quarter in every copy."""
    s = Shape(4, 1, 1, 4, 0.02)
    seen = healthy(s)
    seen["measured"] = {
        "p2p_uni_gb_s": s.rates(lambda i, j: 0.78 * RAW / (4 if {i, j} & set(slow) else 1)),
        "staged_uni_gb_s": s.rates(lambda i, j: 0.62 * RAW / (4 if {i, j} & set(slow) else 1)),
    }
    for gpu in seen["gpus"]:
        gpu["pcie"] = {"max_gen": 4, "max_width": 16}
    return Machine(read(json.dumps(seen)))


def narrow(gpu: int, width: int = 4, prior: float = 0.01) -> Instance:
    return Instance(
        cause="pcie-width-reduced",
        subject=f"gpu:{gpu}",
        prior=prior,
        change=Change(links={gpu: (None, width)}),
        excludes=f"link {gpu}",
        verdict=Verdict.FAIL,
        why="fewer lanes",
        decide="read it",
        seen=f"x{width}",
    )


EVERY = tuple(narrow(gpu, width) for gpu in range(4) for width in (8, 4, 2))


def found(machine: Machine, instances: tuple[Instance, ...] = EVERY) -> tuple[Ranked, ...]:
    return Search(machine, instances).ranking()


def named(ranked: Ranked) -> set[tuple[str, object]]:
    return {(instance.subject, instance.seen) for instance in ranked.world.instances}


def test_a_healthy_machine_needs_no_instance():
    assert named(found(four())[0]) == set()


def test_one_instance_is_found():
    assert named(found(four(2))[0]) == {("gpu:2", "x4")}


def test_two_instances_at_once_are_found():
    best = found(four(1, 3))[0]

    assert named(best) == {("gpu:1", "x4"), ("gpu:3", "x4")}
    assert best.probability > 0.9


def test_the_order_of_instances_changes_nothing():
    forward, backward = found(four(1, 3)), found(four(1, 3), EVERY[::-1])

    assert named(forward[0]) == named(backward[0])
    assert abs(forward[0].probability - backward[0].probability) < 1e-6


def test_what_cannot_both_hold_is_never_in_one_explanation():
    for slow in ((), (2,), (1, 3), (0, 1, 2, 3)):
        for ranked in found(four(*slow)):
            words = [instance.excludes for instance in ranked.world.instances]
            assert len(words) == len(set(words))
    for machine, _ in FAULTS.values():
        observed = Machine(read(json.dumps(machine())))
        instances = tuple(i for hypothesis in all_hypotheses() for i in hypothesis.instances(observed))
        for ranked in found(observed, instances):
            words = [instance.excludes for instance in ranked.world.instances]
            assert len(words) == len(set(words))


def test_the_likelier_of_two_that_fit_alike_comes_first():
    rare, common = narrow(2, prior=0.001), narrow(2, prior=0.1)
    ranking = found(four(2), (rare, common))

    assert ranking[0].world.instances == (common,)
    assert 0.98 < ranking[0].probability < 0.995, "the odds of the priors, 100 to 1"
