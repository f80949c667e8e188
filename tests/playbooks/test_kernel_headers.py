"""Headers of kernels that upgrades bring: the metapackage of the flavor that the host follows."""

import json

import pytest


@pytest.mark.parametrize(
    ("image", "headers"),
    [
        ("linux-image-generic", "linux-headers-generic"),
        ("linux-image-aws", "linux-headers-aws"),
        ("linux-image-generic-hwe-22.04", "linux-headers-generic-hwe-22.04"),
        ("linux-image-nvidia-64k-hwe-24.04", "linux-headers-nvidia-64k-hwe-24.04"),
        ("linux-image-cloud-amd64", "linux-headers-cloud-amd64"),
    ],
)
def test_a_kernel_metapackage_needs_the_headers_of_its_flavor(machine, image, headers):
    """Otherwise the next kernel comes without headers, and DKMS builds no module for it."""
    machine.plan["header_metapackage"] = "linux-headers-{flavor}"
    (machine.folder / "stack.json").write_text(json.dumps(machine.plan))
    machine.extras["packages"][image] = "6.8.0.106.108"

    assert machine.compare()["host"]["headers_missing"] == [headers]
    assert machine.compare()["differences"]["driver"] == [f"{headers} is needed to build the module"]

    machine.extras["packages"][headers] = "6.8.0.106.108"
    assert machine.compare()["differences"] == {}


@pytest.mark.parametrize(
    "name",
    ["linux-image-6.8.0-106-generic", "linux-image-unsigned-6.8.0-106-generic", "linux-image-amd64-dbg", "linux-base"],
)
def test_a_package_of_one_kernel_needs_no_header_metapackage(machine, name):
    machine.plan["header_metapackage"] = "linux-headers-{flavor}"
    machine.extras["packages"][name] = "6.8.0-106.106"

    assert machine.compare()["host"]["headers_missing"] == []


def test_a_held_kernel_metapackage_and_a_plan_without_a_pattern_need_none(machine):
    machine.extras["packages"]["linux-image-generic"] = "6.8.0.106.108"
    assert machine.compare()["host"]["headers_missing"] == []

    machine.plan["header_metapackage"] = "linux-headers-{flavor}"
    machine.facts["holds"].append("linux-image-generic")
    assert machine.compare()["host"]["headers_missing"] == []
