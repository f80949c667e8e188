"""nvidia-modprobe: off by default, at the driver's version, and installed with the driver."""

import pytest

from gpucheck.stack import StackSpec, wants
from gpucheck.stack.lock import lock, still_valid, target_of_group, write_lock
from gpucheck.stack.text import stack_text
from tests.stack import asked
from tests.stack.hosts import SYSTEMS, host

NAME = "nvidia-modprobe"


def requested(value, *more):
    return wants((f"nvidia_modprobe={value}", *more))


def planned(system, *wanted, gpus="t4-x1"):
    return asked.planned(requested("auto", *wanted), system, gpus)


def modprobe_rows(found):
    return [row for row in found.components["driver"]["packages"] if row["name"] == NAME]


def test_default_has_no_key_in_the_set_and_no_package_with_apt():
    assert modprobe_rows(asked.planned(system="ubuntu-22.04")) == []
    assert (
        "nvidia_modprobe" not in write_lock(lock(StackSpec(), [host("ubuntu-22.04", "t4-x1")])).partition("groups:")[2]
    )


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name.startswith(("ubuntu-2", "debian"))])
def test_apt_plan_has_it_once_at_the_drivers_version_and_held(system):
    wanted = ("driver=580", "cuda=12.9") if system == "ubuntu-20.04" else ()
    found = planned(system, *wanted)

    (row,) = modprobe_rows(found)
    assert row["spec"].startswith(f"{NAME}={found.stack.driver.version}-")
    assert NAME in found.components["driver"]["holds"]


def test_dnf_plan_is_the_same_because_the_driver_includes_it():
    plain, found = asked.planned(), planned("rocky-9")

    assert len(modprobe_rows(found)) == 1
    assert (found.components, found.order) == (plain.components, plain.order)


def test_version_without_a_record_is_unconfirmed_and_a_recorded_one_is_not():
    recorded, unseen = planned("ubuntu-22.04", "driver=580.159.04"), planned("ubuntu-22.04", "driver=580.178.04")

    assert not [row for row in recorded.unconfirmed if row.spec.startswith(NAME)]
    assert [row.spec for row in unseen.unconfirmed if row.spec.startswith(NAME)] == [f"{NAME}=580.178.04-1ubuntu1"]


def test_version_of_another_driver_is_refused_with_the_one_that_works():
    conflict = asked.refusal(["T4"], "ubuntu-22.04", "nvidia_modprobe=575.57.08")

    assert conflict.change["nvidia_modprobe"].startswith("580.")


def test_debian_archive_leaves_it_out_with_its_reason():
    found = asked.answer(["T4"], "debian-12", "nvidia_modprobe=auto", "source=debian")

    (reason,) = [reason for reason in found.reasons if reason.component == "nvidia_modprobe"]
    assert reason.because == "omitted: the archive of debian-12 is not known to have nvidia-modprobe"


def test_lock_keeps_it_and_is_still_valid_when_read_again():
    spec = requested("auto")
    made = asked.reread(spec, host("ubuntu-24.04", "t4-x1"))
    (group,) = made.groups.values()

    assert still_valid(target_of_group(group), group.stack, made.spec) == ()
    assert lock(spec, [host("ubuntu-24.04", "t4-x1")], made) == made


def test_set_shows_it():
    assert f"{NAME}    " in stack_text(asked.answer(["T4"], "ubuntu-24.04", "nvidia_modprobe=auto"))
