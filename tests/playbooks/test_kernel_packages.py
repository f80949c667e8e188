"""Modules that the distribution builds: a package for each kernel, which is asked for, held and taken away again."""

import json

import pytest

from tests.playbooks.modules import module, shared

kernel_code, record_code = shared("kernel"), shared("record")
packages_code = module("planned_packages")

RUNNING, NEWER = "5.15.0-179-generic", "5.15.0-181-generic"
PATTERN = "linux-modules-nvidia-580-server-open-{kernel}"
MODULES = PATTERN.format(kernel=RUNNING)
OBJECTS = f"linux-objects-nvidia-580-server-open-{RUNNING}"


@pytest.fixture
def ubuntu(machine):
    """The machine with a plan whose modules the distribution builds, all there."""
    machine.plan["headers"] = []
    machine.plan["kernel_modules"] = {"pattern": PATTERN, "packages": [MODULES]}
    machine.extras["packages"].update({MODULES: "5.15.0-179.189", OBJECTS: "5.15.0-179.189"})
    (machine.folder / "stack.json").write_text(json.dumps(machine.plan))
    return machine


def missing(machine):
    return machine.compare()["host"]["headers_missing"]


def test_headers_are_no_modules(ubuntu):
    """With headers DKMS could build; here nothing builds."""
    del ubuntu.extras["packages"][MODULES]

    assert missing(ubuntu) == [MODULES]
    assert f"{MODULES} is not installed, and contains the module of a kernel" in ubuntu.differences()["driver"]


@pytest.mark.parametrize(("running", "installed"), [(RUNNING, NEWER), ("6.8.0-1034-aws", "6.8.0-1034-aws")])
def test_a_newer_kernel_and_one_that_the_lock_does_not_know_get_their_own(ubuntu, running, installed):
    """The next boot takes the first; the other may have been installed since."""
    ubuntu.facts.update(kernel=running, kernels=[running, installed])

    assert missing(ubuntu) == [PATTERN.format(kernel=installed)]


@pytest.mark.parametrize(
    ("image", "flavor"),
    [
        ("linux-image-generic", "generic"),
        ("linux-image-generic-hwe-22.04", "generic-hwe-22.04"),
        ("linux-image-aws", "aws"),
        ("linux-image-nvidia", "nvidia"),
        # Its kernel is the generic one, with fewer modules.
        ("linux-image-virtual", "generic"),
        ("linux-image-virtual-hwe-22.04", "generic-hwe-22.04"),
    ],
)
@pytest.mark.parametrize("held", [False, True])
def test_the_metapackage_of_the_kernels_flavor_goes_with_it(ubuntu, image, flavor, held):
    """It brings the modules of the kernel that comes with the next driver. The kernel itself is held."""
    ubuntu.extras["packages"][image] = "5.15.0.179.189"
    ubuntu.facts["holds"] += [image] if held else []

    assert missing(ubuntu) == [PATTERN.format(kernel=flavor)]


def test_a_bundle_has_no_metapackage(ubuntu):
    ubuntu.extras["packages"]["linux-image-generic"] = "5.15.0.179.189"
    ubuntu.plan["kernel_modules"]["flavors"] = False

    assert missing(ubuntu) == []


def test_modules_are_held_with_the_kernel(ubuntu):
    plan = {**ubuntu.plan, "kernel_lock": "hold"}
    packages = {**ubuntu.extras["packages"], f"linux-image-{RUNNING}": "1"}

    found = kernel_code.state(plan, [], {"packages": packages}, [])

    assert found["missing"] == sorted([f"linux-image-{RUNNING}", MODULES, OBJECTS])
    elsewhere = {**plan, "kernel_modules": {}}
    assert kernel_code.state(elsewhere, [], {"packages": packages}, [])["missing"] == [f"linux-image-{RUNNING}"]


def test_the_packages_script_makes_the_module_again_without_dkms(ubuntu):
    assert ubuntu.compare()["host"]["build_again"] == ["dpkg-reconfigure", "--frontend", "noninteractive", MODULES]


def order_of(machine, held):
    params = {"plan": machine.plan, "components": ["driver"], "extra": [], "allow_changes": [], "files": []}
    return packages_code.orders({**params, "lock_timeout_s": 1}, machine.compare(), machine.extras["packages"], held)


def test_modules_move_in_the_transaction_of_the_driver(ubuntu):
    """They depend on one release of the driver: named, apt moves them; held and not named, it would find no way."""
    ubuntu.extras["packages"]["nvidia-dkms-580"] = "580.95.05-1"

    order = order_of(ubuntu, [MODULES, OBJECTS])

    assert MODULES in order["specs"]
    assert {MODULES, OBJECTS} <= order["planned"]


def test_modules_stay_where_the_driver_does_not_move(ubuntu):
    ubuntu.facts["holds"].remove("nvidia-dkms-580")

    assert order_of(ubuntu, [])["specs"] == []


@pytest.mark.parametrize(
    ("of_nvidia", "mixed"), [([], []), (["nvidia-utils-580 580.95.05-1"], ["nvidia-utils-580 580.95.05-1"])]
)
def test_a_driver_of_nvidias_repository_is_not_mixed_with_ubuntus(ubuntu, of_nvidia, mixed):
    ubuntu.extras["of_nvidia"] = of_nvidia
    assert ubuntu.compare()["host"]["mixed"] == mixed

    del ubuntu.plan["kernel_modules"]
    assert ubuntu.compare()["host"]["mixed"] == []


def test_modules_are_no_leftovers_until_the_plan_has_none(ubuntu, monkeypatch):
    packages = ubuntu.extras["packages"]
    (ubuntu.folder / "installed.json").write_text(json.dumps({"added": [MODULES, OBJECTS, "nvidia-dkms-580"]}))
    monkeypatch.setattr(record_code, "relations", lambda _: ({MODULES: {OBJECTS}}, {n: {n} for n in packages}))

    assert record_code.leftovers(ubuntu.plan, packages, "dpkg", ubuntu.plan) == []
    gone = {**ubuntu.plan, "components": {}, "kernel_modules": {}}
    assert record_code.leftovers(gone, packages, "dpkg", ubuntu.plan) == sorted([MODULES, OBJECTS, "nvidia-dkms-580"])


def test_holds_of_modules_are_not_lifted_while_they_are_planned(ubuntu):
    packages = ubuntu.extras["packages"]
    (ubuntu.folder / "installed.json").write_text(json.dumps({"added": [MODULES, OBJECTS]}))

    assert record_code.unplanned(ubuntu.plan, packages, [MODULES, OBJECTS]) == {"installed": [], "held": []}
    gone = {**ubuntu.plan, "kernel_modules": {}}
    assert record_code.unplanned(gone, packages, [MODULES])["held"] == [MODULES]
