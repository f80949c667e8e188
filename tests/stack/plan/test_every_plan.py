"""Plans of every system with every GPU set: what must hold in each, where no reviewed file shows it."""

from functools import cache

import pytest

from gpucheck.stack import Refusal
from gpucheck.stack.lock import lock
from gpucheck.stack.plan import plan
from tests.stack import regenerate
from tests.stack.hosts import GPU_SETS, SYSTEMS, host

ARCHIVES = regenerate.ARCHIVES
EVERYWHERE = [*SYSTEMS, *ARCHIVES]
OF_THE_SYSTEM = ("infiniband-diags", "libibumad", "libibumad3")


@cache
def plans(system):
    """(GPU set, plan or refusal) of every GPU set on a system."""
    name, spec = ARCHIVES.get(system, (system, regenerate.SPECS.get(system, regenerate.StackSpec())))
    return [(gpus, plan(lock(spec, [host(name, gpus)]), host="node01")) for gpus in GPU_SETS]


def planned(system):
    """The plans that exist."""
    return [(gpus, found) for gpus, found in plans(system) if not isinstance(found, Refusal)]


def package_rows(found):
    """Every package of a plan with the name of its component."""
    return [(name, row) for name, part in found.components.items() for row in part["packages"]]


@pytest.mark.parametrize("system", EVERYWHERE)
def test_plan_exists_or_conflict_has_facts_source_and_advice(system):
    for gpus, found in plans(system):
        if isinstance(found, Refusal):
            assert found.conflicts, gpus
            for conflict in found.conflicts:
                assert conflict.because, gpus
                assert conflict.source, gpus
                assert conflict.try_, gpus
                assert all(fact.fact and fact.source for fact in conflict.between), gpus


def has_plan(system, gpus):
    """Return whether a system can be planned with a GPU set. Ubuntu 20.04 needs a stated driver."""
    if system in ("centos-7", "centos-stream-8") or gpus == "mixed-v100-b200":
        return False
    # The directories of these systems begin after the last branch for Pascal and Volta.
    late = system in ("ubuntu-26.04", "debian-13")
    return not (late and gpus.startswith(("p100", "v100", "mixed-v100")))


@pytest.mark.parametrize("system", [system for system in SYSTEMS if system != "ubuntu-20.04"])
def test_plan_has_the_components_and_holds_that_the_roles_read(system):
    found = dict(planned(system))

    assert list(found) == [gpus for gpus in GPU_SETS if has_plan(system, gpus)]
    for one in found.values():
        assert list(one.components) == ["driver", "fabric_manager", "cuda", "cudnn", "nccl", "container_toolkit"]
        for component in one.components.values():
            names = [package["name"] for package in component["packages"]]
            assert component["holds"] == [name for name in names if name not in OF_THE_SYSTEM]
            assert not any("{" in package["spec"] for package in component["packages"])
        assert (one.module_stream is None) == (one.package_manager == "apt" or one.os["version"] == "10")
        assert set(one.expected) == {"driver_version", "kernel_module", "fabric_manager_version"}


@pytest.mark.parametrize("system", EVERYWHERE)
def test_package_spec_carries_the_planned_version(system):
    for gpus, found in planned(system):
        names = [row["name"] for _, row in package_rows(found)]
        assert len(names) == len(set(names)), gpus
        stack = found.stack
        expected = {"cudnn": stack.cudnn, "nccl": (stack.nccl or "").partition("+")[0]}
        expected |= {"container_toolkit": stack.container_toolkit}
        expected |= {} if system in ARCHIVES else {"driver": stack.driver.version, "cuda": stack.cuda}
        expected |= {"fabric_manager": stack.fabric_manager or stack.imex}
        for name, row in package_rows(found):
            unversioned = row["version"] is None and row["spec"] == row["name"]
            if unversioned or row["name"].endswith("-config-common"):
                continue
            if name in expected:
                assert expected[name] in row["version"], (gpus, row)
