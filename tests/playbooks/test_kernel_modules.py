"""What a kernel lacks: modules that an NVLink 5 board needs, and headers of kernels that upgrades bring."""

import json

import pytest

from tests.playbooks.modules import shared
from tests.playbooks.planned import record_code

rdma = shared("rdma")
UMAD = {"path": "/etc/modules-load.d/gpucheck-ib_umad.conf", "content": "ib_umad\n", "mode": "0644", "initramfs": False}
RUNNING, NEXT = "5.15.0-179-generic", "5.15.0-200-generic"


@pytest.fixture
def board(machine, monkeypatch):
    """A planned host whose plan wants ib_umad, on Ubuntu; .absent says by kernel what modinfo does not find."""
    machine.absent = {RUNNING: ["ib_umad", "mlx5_ib"]}
    machine.facts.update(os={"id": "ubuntu"}, stand_ins=[])
    machine.plan["files"].append(UMAD)
    monkeypatch.setattr(
        rdma,
        "absent_modules",
        lambda plan, loaded, kernel: machine.absent.get(kernel, []) if UMAD in plan["files"] else [],
    )
    return machine


def test_on_ubuntu_the_package_that_carries_them_is_installed_for_the_running_and_the_next_kernel(board):
    board.facts["kernels"].append(NEXT)
    board.absent[NEXT] = ["ib_umad"]

    answer = board.compare()

    names = [f"linux-modules-extra-{release}" for release in (RUNNING, NEXT)]
    assert answer["host"]["modules_packages"] == names
    assert f"{names[0]} is needed for ib_umad, mlx5_ib" in answer["differences"]["driver"]
    assert answer["host"]["refusals"] == []


@pytest.mark.parametrize("system", ["rocky", "debian"])
def test_elsewhere_the_host_is_refused_with_what_is_missing(board, system):
    board.facts["os"] = {"id": system}

    answer = board.compare()

    assert answer["host"]["modules_packages"] == []
    (words,) = answer["host"]["refusals"]
    assert f"kernel {RUNNING} has no module ib_umad, mlx5_ib" in words


def test_the_package_that_is_there_and_does_not_help_is_told(board):
    board.extras["packages"][f"linux-modules-extra-{RUNNING}"] = "5.15.0-179.189"

    answer = board.compare()

    assert answer["host"]["modules_packages"] == []
    assert len(answer["host"]["refusals"]) == 1


def test_a_borrowed_kernel_is_not_asked(board):
    """In a container the running kernel is another machine's."""
    board.facts["stand_ins"] = ["kernel of the machine below"]

    assert board.compare()["host"]["modules_packages"] == []


def test_the_package_stays_while_the_host_is_provisioned(machine, monkeypatch):
    """No plan names it, as its name holds the kernel's release."""
    name = f"linux-modules-extra-{RUNNING}"
    monkeypatch.setattr(record_code, "added", lambda packages, recorded: {name})
    monkeypatch.setattr(record_code, "relations", lambda family: ({}, {}))

    assert record_code.leftovers(machine.plan, {name: "1"}, "dpkg", None) == []
    assert record_code.leftovers({**machine.plan, "components": {}}, {name: "1"}, "dpkg", None) == [name]


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
