"""Revisions and names of packages as documents show them (tests/data/repositories), beside the judge of every plan."""

import pytest

from gpucheck.stack import StackSpec
from tests.stack.plan.test_plan import planned

HGX = "h100-sxm5-x8"


def specs(system: str, gpus: str, part: str, **spec: str) -> list[str]:
    """What a plan asks for of one part."""
    stated = planned(system, gpus, StackSpec(**spec)) if spec else planned(system, gpus)  # type: ignore[arg-type]
    return [row["spec"] for row in stated.components[part]["packages"]]


@pytest.mark.parametrize(
    ("system", "driver", "revision"),
    [
        ("rocky-9", "580.126.20", "1"),  # Azure/azhpc-images:versions.json
        ("rocky-8", "580.167.08", "1.el8"),  # id 68549135382
        ("rocky-9", "580.178.04", "1.el9"),  # of rhel10: id 61672803007
        ("rocky-8", "590.44.01", "1.el8"),  # id 69541790405
        ("rocky-9", "610.43.02", "1.el9"),  # id 56469457091
        ("ubuntu-24.04", "580.105.08", "1"),  # id 54028397389
        ("ubuntu-24.04", "580.126.20", "1"),  # id 54804248000
        ("ubuntu-22.04", "595.91.07", "1ubuntu1"),  # id 70218713733
    ],
)
def test_fabric_manager_has_revisions_of_its_own(system, driver, revision):
    found = specs(system, HGX, "fabric_manager", driver=driver)
    separator = "=" if system.startswith("ubuntu") else "-"

    assert found == [f"{name}{separator}{driver}-{revision}" for name in ("nvidia-fabricmanager", "libnvidia-nscq")]


def test_a_stated_revision_is_that_of_the_driver_alone():
    """NVIDIA/infra-controller installs 580.126.16-1ubuntu1 beside nvidia-fabricmanager and nvidia-imex 580.126.16-1."""
    stated = {"driver": "580.126.16-1ubuntu1"}

    assert specs("ubuntu-24.04", HGX, "driver", **stated)[1] == "libnvidia-compute-580=580.126.16-1ubuntu1"
    assert specs("ubuntu-24.04", HGX, "fabric_manager", **stated) == [
        "nvidia-fabricmanager=580.126.16-1",
        "libnvidia-nscq=580.126.16-1",
    ]
    assert specs("ubuntu-24.04", "gb200-x4", "fabric_manager", **stated) == ["nvidia-imex=580.126.16-1"]


def test_pinning_package_is_planned_without_a_version():
    """Its revisions are not those of the driver: 580.126.20-1 beside 580.126.20-1ubuntu1 (id 54813605391)."""
    assert specs("ubuntu-24.04", "t4-x1", "driver")[0] == "nvidia-driver-pinning-580.178.04"


def test_the_parts_of_the_driver_are_split_anew_from_610():
    """rpm -qa of EL 9 with 615.71.09 (id 68409741095): nvidia-driver-common, and no libnvidia-ml."""
    before = {spec.partition("-3:")[0] for spec in specs("rocky-9", "t4-x1", "driver", driver="595")}
    after = {spec.partition("-3:")[0] for spec in specs("rocky-9", "t4-x1", "driver", driver="615")}

    assert before - after == {"libnvidia-ml"}
    assert after - before == {"nvidia-driver-common"}


def test_a_part_of_the_driver_may_have_a_revision_of_its_own():
    """575.57.08 as NVIDIA/infra-controller installed it; fabric manager still had the branch in its name."""
    stated = {"driver": "575.57.08"}

    assert specs("ubuntu-24.04", HGX, "driver", **stated) == [
        "libnvidia-compute-575=575.57.08-0ubuntu1",
        "nvidia-dkms-575-open=575.57.08-0ubuntu1",
        "nvidia-utils-575=575.57.08-0ubuntu1",
        "nvidia-persistenced=575.57.08-1ubuntu1",
    ]
    assert specs("ubuntu-24.04", HGX, "fabric_manager", **stated)[0] == "nvidia-fabricmanager-575=575.57.08-1"
